"""Keeps malloc from giving the memory of each batch of private copies back to the system, only to ask for it again with the next batch.

glibc gives the end of its heap back once 128 KiB of it are free. A batch of private copies is freed at once, so that each batch's pages were unmapped
and then faulted in again, which takes more time than the copying. glibc raises that limit by itself when a block of its own mapping is freed, to twice
the block (mallopt(3), M_MMAP_THRESHOLD). Another malloc is not changed.
"""

from __future__ import annotations

_MOST = (32 << 20) - (64 << 10)  # bytes: glibc adapts to no larger block
_kept = 128 << 10  # bytes of the largest block so far


def keep_freed(size: int) -> None:
    """Has malloc keep up to twice that many freed bytes for later use, 64 MB at most. For batches of that many bytes."""
    global _kept
    size = min(size, _MOST)
    if size > _kept:
        _kept = size
        bytes(size)  # a mapping whose pages are never touched, and which ends here
