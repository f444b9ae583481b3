"""A thread that acts on the end of objects: it gives leases back, and closes what a program dropped without close().

A signal's handler may raise after any call in the main thread. What is raised within a finalizer written in Python is printed and lost, Ctrl-C too.
So the only finalizers here are methods of C: they append to a queue, and this thread or the next call of the program does the work.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import logging
import os
import time
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

_log = logging.getLogger("lcache")

_GATHER = 0.02  # seconds between an object's end and what follows, in which the program's next call often does the work

_queue: SimpleQueue[Any] = SimpleQueue()  # put() may run within a finalizer. It works in a forked child, too
_owners: dict[int, Owner] = {}
_settling: dict[int, Callable[[], None]] = {}  # by the id of a session, what settles its records
_pid = 0  # of the process in which the thread runs


class Owner(weakref.ref[Any]):
    """A reference to an object, with what is called after its end."""

    __slots__ = ("ended",)

    ended: Callable[[], None]


def when_gone(target: Any, ended: Callable[[], None]) -> None:
    """Calls ended() in the thread soon after target has gone. Not at the interpreter's end."""
    owner = Owner(target, _queue.put)
    owner.ended = ended
    _owners[id(owner)] = owner


def wakes_when_gone(target: Any) -> weakref.ref[Any]:
    """A reference that wakes the thread at the end of target. The caller keeps it."""
    return weakref.ref(target, _queue.put)


def wake() -> None:
    """Has the thread settle the records of all sessions. Safe in finalizers and in signal handlers."""
    _queue.put(None)


def watch(session: Any, settle: Callable[[], None]) -> None:
    """Keeps a session, and settles its records whenever the thread wakes."""
    global _pid
    _settling[id(session)] = settle
    if _pid != os.getpid():
        # Not threading.Thread: its start() waits, and an interrupt of that wait leaves its condition unlocked.
        _thread.start_new_thread(_run, ())
        _pid = os.getpid()  # an interrupt before this line costs a second thread, which does no harm


def unwatch(session: Any) -> None:
    """Forgets a session that has no more records to settle."""
    _settling.pop(id(session), None)


def act() -> None:
    """Handles the objects that have ended so far."""
    with contextlib.suppress(Empty):
        while True:
            owner = _queue.get_nowait()
            if isinstance(owner, Owner):
                _owners.pop(id(owner), None)
                _do(owner.ended)
    for settle in list(_settling.values()):
        _do(settle)


def _do(act: Callable[[], None]) -> None:
    """An error of one object is logged, and the others are acted on all the same."""
    try:
        act()
    except Exception:  # noqa: BLE001  whatever it is, the other objects are not to wait for it
        _log.exception("an object that has ended can't give back what it held")


def _run() -> None:
    while True:
        _queue.put(_queue.get())
        time.sleep(_GATHER)
        act()


atexit.register(act)  # a server learns of the end of a process later than of a BYE
