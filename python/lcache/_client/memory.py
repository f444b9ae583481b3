"""The server's shared memory, mapped read-only. Anchors detect the end of the last reference to a part of it.

libc's mmap makes the map, not the mmap module, because a view of an mmap object can't be weakly referenced, and such an object can't be closed
while views exist. Here each batch has an anchor, a ctypes array over the map. Every view, slice, cast, array and tensor that is made from the
anchor keeps it alive. When the anchor is gone, the lease ends.
"""

from __future__ import annotations

import ctypes
import fcntl
import os

from ..errors import ConnectionError, ProtocolError

_PROT_READ, _MAP_SHARED = 1, 1
_F_GET_SEALS, _SEAL_SHRINK = 1034, 2
_MAP_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


class Map:
    """One mapping of a memfd. `size` is in bytes. The caller counts the anchors, and calls unmap() only when none is left."""

    __slots__ = ("_array", "_base", "size")

    def __init__(self, fd: int) -> None:
        """Maps all of fd, which the caller may close afterwards.

        Raises ProtocolError for memory that could shrink, because a read beyond its end would be a SIGBUS, and ConnectionError if mmap fails.
        """
        self._base: int | None = None
        try:
            seals = fcntl.fcntl(fd, _F_GET_SEALS)
        except OSError as e:
            raise ProtocolError(f"map the server's memory: its descriptor is not a sealed memfd: {e}") from None
        if not seals & _SEAL_SHRINK:
            raise ProtocolError("map the server's memory: it is not sealed against shrinking")
        self.size = os.fstat(fd).st_size
        if self.size <= 0:
            raise ProtocolError("map the server's memory: it is empty")
        base = _libc.mmap(None, self.size, _PROT_READ, _MAP_SHARED, fd, 0)
        if base is None or base == _MAP_FAILED:
            cause = os.strerror(ctypes.get_errno())
            raise ConnectionError(f"map {self.size} bytes of the server's memory: {cause}")
        self._base = base
        self._array = ctypes.c_char * self.size  # one type for all anchors, because making a type is slow

    def anchor(self) -> tuple[ctypes.Array[ctypes.c_char], memoryview]:
        """An array, and a read-only view of the whole map. The view keeps the array alive, and so does every object made from the view.

        The caller keeps no reference to the array.
        """
        assert self._base is not None, "the map is gone"
        array = self._array.from_address(self._base)
        return array, memoryview(array).toreadonly().cast("B")

    def copy(self, offset: int, length: int) -> memoryview:
        """A private copy of length bytes from offset on."""
        assert self._base is not None and offset + length <= self.size
        return memoryview(ctypes.string_at(self._base + offset, length))

    def unmap(self) -> None:
        """Ends the mapping. There must be no anchor left."""
        base, self._base = self._base, None
        if base is not None:
            _libc.munmap(base, self.size)


_MOST = (32 << 20) - (64 << 10)  # bytes: glibc does not adapt to larger blocks
_kept = 128 << 10  # bytes of the largest block so far


def keep_freed(size: int) -> None:
    """Makes malloc keep up to 2 * size freed bytes for later use, 64 MB at most. size: bytes of a batch.

    By default glibc returns the end of its heap to the kernel once 128 KiB of it are free. A batch of private copies is freed as a whole, so the pages of
    each batch would be unmapped and faulted in again, which takes longer than the copies. When a block with its own mapping is freed, glibc raises the
    limit to twice the block (mallopt(3), M_MMAP_THRESHOLD). This function uses that. It has no effect on other mallocs.
    """
    global _kept
    size = min(size, _MOST)
    if size > _kept:
        _kept = size
        bytes(size)  # a mapping whose pages are never touched, freed at once
