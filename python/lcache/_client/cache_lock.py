"""The lock by which one process at a time lists a cache's source and starts its server. After a failure it leaves no new folder behind."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import sys
import time
from typing import Any

from ..errors import Error, TimeoutError, of_errno, printable
from .trust import make_folder, open_file, require_folder

POLL = 0.1  # seconds between attempts to take a lock that another process holds
_TRUE = ("1", "t", "T", "true", "TRUE", "True")  # true values of a variable, as for the lcache program
_SAY = 5.0  # seconds between two printed lines about the same wait


def print_line(line: str) -> None:
    """Prints a line for the user on stderr, unless stderr is closed or $LCACHE_QUIET is set."""
    if sys.stderr is not None and not is_quiet():
        print(f"lcache: {printable(line)}", file=sys.stderr, flush=True)


def is_quiet() -> bool:
    """Whether the user wants no lines on stderr."""
    return os.environ.get("LCACHE_QUIET") in _TRUE


class NewFolder:
    """The folder of a new cache. If making the cache fails, the folders that were made for it are removed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._made: list[str] = []  # missing folders, the innermost first

    def __enter__(self) -> None:
        while not os.path.lexists(self._path):
            self._made.append(self._path)
            self._path = os.path.dirname(self._path)

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is None or not self._made:
            return
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:  # another program has put a file there, or the folder is gone
            if not set(os.listdir(self._made[0])) <= _LEFTOVERS:
                return
            with contextlib.suppress(FileNotFoundError):
                lock = held.enter_context(os.fdopen(open_file(os.path.join(self._made[0], "LOCK"), os.O_RDWR), "rb+"))
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # `lcache run` may be starting a cache here
            for name in _LEFTOVERS:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self._made[0], name))
            for folder in self._made:
                os.rmdir(folder)


# The files that a failed listing leaves in the folder of a new cache.
_LEFTOVERS = {"open.lock", "LOCK", "manifest", "manifest.new", "shards"}


class Lock(io.FileIO):
    """A file that one process at a time locks, and into which it writes its current activity. The kernel unlocks it when the process ends.

    It is a file object because a file object closes with its last reference. So an interrupted call leaves no lock behind.
    """

    @classmethod
    def take(cls, path: str, timeout: float) -> Lock:
        """Locks the file, for use in a `with` statement. Raises TimeoutError if the holder has written nothing new for the timeout."""
        while True:
            lock = cls(_open(path), "r+")
            try:
                lock._wait(path, timeout)
                if lock._is_in_place(path):
                    lock.write_activity("opening")
                    return lock
            except BaseException:
                lock.close()
                raise
            lock.close()

    def _is_in_place(self, path: str) -> bool:
        """Whether the locked file is still the one at its path. The previous holder may have removed it."""
        try:
            return os.path.samestat(os.fstat(self.fileno()), os.stat(path))
        except FileNotFoundError:
            return False

    def write_activity(self, what: str) -> None:
        """Writes this process's activity, for the waiting processes."""
        text = f"{os.getpid()}: {what}".encode()
        os.pwrite(self.fileno(), text, 0)
        os.ftruncate(self.fileno(), len(text))

    def _wait(self, path: str, timeout: float) -> None:
        """Waits for the lock. Raises TimeoutError if the holder has written nothing new for the timeout."""
        known, changed, printed = b"", time.monotonic(), time.monotonic() - _SAY + 1
        while True:
            try:
                fcntl.flock(self.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                pass
            now, written = time.monotonic(), os.pread(self.fileno(), 4096, 0)
            if written != known:
                known, changed = written, now
            if now - changed > timeout:
                holder = written.decode(errors="backslashreplace")
                raise TimeoutError(f"waited {timeout:g} s for {path}, and its holder, pid {holder}, makes no progress: end that process, or wait for it")
            if now - printed >= _SAY:
                printed = now
                print_line(f"waiting for pid {written.decode(errors='backslashreplace')}")
            time.sleep(POLL)


def _open(path: str, tries: int = 5) -> int:
    """Opens the file, and makes its folder. If the previous holder of the lock removes the folder meanwhile, it is made again."""
    folder = os.path.dirname(path)
    try:
        make_folder(folder)
        require_folder(folder)
        return open_file(path, os.O_RDWR | os.O_CREAT)
    except Error:
        raise
    except OSError as e:
        if isinstance(e, FileNotFoundError) and tries > 1:
            return _open(path, tries - 1)
        raise of_errno(e.errno, f"make the cache's folder {folder}: {e.strerror}: give another cache=") from None
