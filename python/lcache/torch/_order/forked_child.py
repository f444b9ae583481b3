"""A forked copy of this process that runs a sampler in advance, without any effect outside itself.

The program must not notice the child. So the child has no signal handlers, no file, pipe or socket of its parent, and no writable shared memory. It can
not open anything. It ends if it tries to change a file, or to reach another process. It writes its results to memory that it shares with the parent, which
reads them at any time. A child never waits for its parent, and a parent waits only up to a deadline.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import mmap
import os
import pickle
import resource
import select
import signal
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import torch

from ...errors import Error
from .sampler_copy import EndlessError, RandomStates

SECONDS = 10.0  # a child is killed after that time
_LATE = f"it took longer than {SECONDS:.0f} s"
_ENDING = 1.0  # seconds of waiting for the end of a killed process

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_unreaped: list[int] = []  # killed children that had not ended within that time


class ChildError(Error):
    """A child ended without an answer. The text gives the reason. final: any other child would fail as well."""

    def __init__(self, why: str, final: bool = False) -> None:
        super().__init__(why)
        self.final = final


class Child:
    """Runs a generator function in a forked child. Only the thread that made the object calls its methods."""

    def __init__(self, function: Callable[[], Iterator[Any]]) -> None:
        """Raises ChildError if this process can't be forked."""
        _reap()
        self.over = False  # the child ended, and all of its values were received
        self._until = time.monotonic() + SECONDS
        self._at = 0  # the place of the next frame
        states = RandomStates()
        with contextlib.ExitStack() as opened:
            try:
                self._memory = os.memfd_create("lcache-child")
                opened.callback(os.close, self._memory)
                self._woken, wakes = os.pipe()  # has a byte for each frame, and hangs up when the child ends
                opened.callback(os.close, self._woken)
                try:
                    self._pid = _fork(function, states, self._memory, wakes)
                finally:
                    os.close(wakes)
            except OSError as e:
                raise ChildError(f"this process can't be forked ({e})", final=True) from None
            opened.pop_all()
        self._end = weakref.finalize(self, _end, os.getpid(), self._pid, self._memory, self._woken)

    def receive(self, seconds: float = 0.0) -> list[Any]:
        """The values that the child yielded since the last call. If there are none yet, waits at most `seconds` for the first.

        Raises ChildError if the child ended before its function did, and all values were returned.
        """
        until = time.monotonic() + seconds
        found: list[Any] = []
        while not self.over:
            before, frame = self._at, self._next_frame()
            if frame is not None:
                kind, value = frame
                if kind == "value":
                    found.append(value)
                    continue
                if kind == "failed" and found:
                    self._at = before  # the next call raises the error
                    break
                self.close()
                if kind == "failed":
                    raise ChildError(*value)
            elif found:
                break
            elif not self._wait(min(until, self._until)):
                if time.monotonic() < self._until:
                    break
                self.close()
                raise ChildError(_LATE)
        return found

    def close(self) -> None:
        """Ends the child, and waits for its end."""
        self.over = True
        if self._end.detach() is None:
            return
        try:
            if not _is_gone(self._pid):
                _kill(self._pid)
                _unreaped.append(self._pid)
                poll = select.poll()
                poll.register(self._woken, 0)
                if poll.poll(1000 * _ENDING):  # the pipe hangs up a moment before the process ends
                    with contextlib.suppress(ChildProcessError):
                        os.waitpid(self._pid, 0)
                    _unreaped.remove(self._pid)
        finally:
            os.close(self._memory)
            os.close(self._woken)

    @property
    def _has_frame(self) -> bool:
        return os.pread(self._memory, 8, self._at) not in (b"", bytes(8))

    def _next_frame(self) -> Any:
        if not self._has_frame:
            return None
        size = int.from_bytes(os.pread(self._memory, 8, self._at), "little")
        frame = pickle.loads(_read(self._memory, size, self._at + 8))
        self._at += 8 + size
        return frame

    def _wait(self, until: float) -> bool:
        """Waits for the next frame. False at the time `until`. Raises ChildError if the child has ended."""
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        events = poll.poll(max(0.0, 1000 * (until - time.monotonic())))
        if not events:
            return False
        if not os.read(self._woken, 4096) and not self._has_frame:
            self.close()
            raise ChildError(_LATE if time.monotonic() >= self._until else "its process was killed")
        return True


def answer_of(function: Callable[[], Any]) -> Any:
    """Runs a function in a child, and waits for its result. Raises ChildError if there is none."""
    child = Child(lambda: iter([function()]))
    try:
        found = child.receive(SECONDS)
    finally:
        child.close()
    if not found:
        raise ChildError("it gave no answer")
    return found[0]


def _fork(function: Callable[[], Iterator[Any]], states: RandomStates, memory: int, wakes: int) -> int:
    """Forks. No signal is handled between the fork and the child's first steps."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python 3.12 warns about threads; a child that waits for one is killed
            pid = os.fork()
        if pid == 0:
            _run(function, states, memory, wakes)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    return pid


def _run(function: Callable[[], Iterator[Any]], states: RandomStates, memory: int, wakes: int) -> NoReturn:
    """Runs in the child. It always ends by os._exit, because it must not unwind the parent's stack."""
    at = 0

    def send(kind: str, value: Any) -> None:
        nonlocal at
        frame = memoryview(pickle.dumps((kind, value), pickle.HIGHEST_PROTOCOL))
        size, done = len(frame), 0
        while done < size:
            done += os.pwrite(memory, frame[done:], at + 8 + done)
        os.pwrite(memory, size.to_bytes(8, "little"), at)  # last, because the parent sees the frame from now on
        at += 8 + size
        os.write(wakes, b"+")

    def fail(why: str, final: bool = False) -> NoReturn:
        with contextlib.suppress(BaseException):
            send("failed", (why, final))
        os._exit(1)

    try:
        _cut_off(memory, wakes, fail)
        states.restore()  # Python's own generator is seeded again in every forked process
        for value in function():
            send("value", value)
        send("end", None)
        os._exit(0)
    except BaseException as e:  # noqa: BLE001  any sampler's code may run here
        fail(e.args[0] if isinstance(e, Error) else repr(e), isinstance(e, EndlessError))


def _cut_off(memory: int, wakes: int, fail: Callable[[str], NoReturn]) -> None:
    """Removes the child's means to affect other processes, and limits its time."""
    gc.disable()  # the finalizers of inherited objects are the parent's
    for number in signal.valid_signals():
        if number == signal.SIGALRM or callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)  # in case the parent has ended, or does not check
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    torch.set_num_threads(1)  # OpenMP's threads exist only in the parent
    _protect_shared_memory()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd not in (null, memory, wakes):
            os.dup2(null, fd, False)
    for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE):
        resource.setrlimit(limit, (0, resource.getrlimit(limit)[1]))

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" or (event.startswith(_REACHING) and event not in _HARMLESS):
            fail(f"it calls {event} {arguments[0] if arguments else ''!r:.100}")

    sys.addaudithook(refuse)


_REACHING = ("os.", "shutil.", "socket.", "subprocess.", "signal.", "fcntl.", "pty.", "syslog.", "sqlite3.", "tempfile.")
_HARMLESS = ("os.listdir", "os.scandir", "os.walk", "os.fwalk", "os.getxattr", "os.listxattr")


def _protect_shared_memory() -> None:
    """Makes all shared memory of the process read-only. A write to it ends the child."""
    with open("/proc/self/maps", "rb") as f:
        maps = f.read().splitlines()
    for line in maps:
        addresses, permissions, _ = line.split(None, 2)
        if permissions[1:2] == b"w" and permissions[3:4] == b"s":
            begin, end = (int(address, 16) for address in addresses.split(b"-"))
            if _libc.mprotect(begin, end - begin, mmap.PROT_READ):
                raise OSError(ctypes.get_errno(), "shared memory can't be protected")


def _read(fd: int, size: int, at: int) -> bytearray:
    """Reads a part of a file."""
    found = bytearray()
    while len(found) < size:
        piece = os.pread(fd, size - len(found), at + len(found))
        if not piece:
            raise ChildError("its answer is cut off")
        found += piece
    return found


def _end(owner: int, pid: int, memory: int, woken: int) -> None:
    """Kills a child if it still runs. Only the parent does so."""
    if os.getpid() == owner and not _is_gone(pid):
        _kill(pid)
        _unreaped.append(pid)
    for fd in (memory, woken):
        os.close(fd)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # the program may have waited for it meanwhile
        os.kill(pid, signal.SIGKILL)


def _reap() -> None:
    _unreaped[:] = [pid for pid in _unreaped if not _is_gone(pid)]


def _is_gone(pid: int) -> bool:
    """Whether a child has ended. It is then reaped, and its pid may be reused."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True  # already reaped: the program waits for any child, or ignores SIGCHLD
