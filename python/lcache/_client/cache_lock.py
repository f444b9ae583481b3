"""The folder of a cache while one process at a time lists its source and starts its server: a lock, and nothing left behind after a failure."""

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

POLL = 0.1  # seconds between looks at a lock that another process holds
_TRUE = ("1", "t", "T", "true", "TRUE", "True")  # values of a variable that is on, as for the lcache program
_SAY = 5.0  # seconds between two printed lines about the same wait


def print_line(line: str) -> None:
    """Tells the user something on stderr, unless there is none, or $LCACHE_QUIET is set."""
    if sys.stderr is not None and os.environ.get("LCACHE_QUIET") not in _TRUE:
        print(f"lcache: {printable(line)}", file=sys.stderr, flush=True)


class NewFolder:
    """The folder of a cache that is about to be made. If that fails, no folder is left that was not there before."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._made: list[str] = []  # folders that do not exist yet, the innermost first

    def __enter__(self) -> None:
        while not os.path.lexists(self._path):
            self._made.append(self._path)
            self._path = os.path.dirname(self._path)

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is None or not self._made:
            return
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:  # it has something of another program, or is gone
            if not set(os.listdir(self._made[0])) <= _LEFTOVERS:
                return
            with contextlib.suppress(FileNotFoundError):
                lock = held.enter_context(os.fdopen(open_file(os.path.join(self._made[0], "LOCK"), os.O_RDWR), "rb+"))
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # `lcache run` may just begin a cache here
            for name in _LEFTOVERS:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self._made[0], name))
            for folder in self._made:
                os.rmdir(folder)


# What a listing that fails leaves in a new cache's folder.
_LEFTOVERS = {"open.lock", "LOCK", "manifest", "manifest.new", "shards"}


class Lock(io.FileIO):
    """A file that one process at a time has locked, and into which that process writes what it does. The kernel unlocks it when the process ends.

    It is a file object because that closes when it goes: an interrupted call leaves no lock behind that nothing refers to.
    """

    @classmethod
    def take(cls, path: str, timeout: float) -> Lock:
        """The file, locked, to be used in a `with` statement. TimeoutError when the holder has written nothing new for the timeout."""
        while True:
            lock = cls(_open(path), "r+")
            try:
                lock._wait(path, timeout)
                if lock._is_in_place(path):
                    lock.say("opening")
                    return lock
            except BaseException:
                lock.close()
                raise
            lock.close()

    def _is_in_place(self, path: str) -> bool:
        """Whether the locked file is the one that other processes find. The holder before may have removed it."""
        try:
            return os.path.samestat(os.fstat(self.fileno()), os.stat(path))
        except FileNotFoundError:
            return False

    def say(self, what: str) -> None:
        """Writes this process's activity, for the processes that wait."""
        text = f"{os.getpid()}: {what}".encode()
        os.pwrite(self.fileno(), text, 0)
        os.ftruncate(self.fileno(), len(text))

    def _wait(self, path: str, timeout: float) -> None:
        """Waits for the lock. TimeoutError when the holder has written nothing new for the timeout."""
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
                raise TimeoutError(f"waited {timeout:g} s for pid {written.decode(errors='backslashreplace')}, without news from it ({path})")
            if now - printed >= _SAY:
                printed = now
                print_line(f"waiting for pid {written.decode(errors='backslashreplace')}")
            time.sleep(POLL)


def _open(path: str, tries: int = 5) -> int:
    """Opens the file, and makes its folder. The process that held the lock may just remove the folder: then it is made again."""
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
