"""A thread that acts when objects are gone: it releases leases, and closes jobs that a program dropped without close().

A signal's handler may raise after any call in the main thread. If that happens within a finalizer written in Python, the exception is printed and lost,
even Ctrl-C. So the only finalizers here are methods written in C. They append to a queue, and this thread or the program's next call does the work.
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

_GATHER = 0.02  # seconds of delay, in which the program's next call often does the work

_queue: SimpleQueue[Any] = SimpleQueue()  # put() may run within a finalizer. It works in a forked child, too
_owners: dict[int, Owner] = {}
_settling: dict[int, Callable[[], None]] = {}  # by the id of a session, the function that settles its records
_pid = 0  # the process in which the thread runs


class Owner(weakref.ref[Any]):
    """A weak reference to an object, with a function to be called when the object is gone."""

    __slots__ = ("ended",)

    ended: Callable[[], None]


def when_gone(target: Any, ended: Callable[[], None]) -> None:
    """Calls ended() in the thread soon after target has gone. Not at the interpreter's end."""
    owner = Owner(target, _queue.put)
    owner.ended = ended
    _owners[id(owner)] = owner


def wakes_when_gone(target: Any) -> weakref.ref[Any]:
    """A weak reference that wakes the thread when target is gone. The caller keeps it."""
    return weakref.ref(target, _queue.put)


def wake() -> None:
    """Makes the thread settle the records of all sessions. Safe in finalizers and in signal handlers."""
    _queue.put(None)


def watch(session: Any, settle: Callable[[], None]) -> None:
    """Keeps a session, and settles its records whenever the thread wakes."""
    global _pid
    _settling[id(session)] = settle
    if _pid != os.getpid():
        # Not threading.Thread, because an interrupt of the wait in its start() leaves its condition unlocked.
        _thread.start_new_thread(_run, ())
        _pid = os.getpid()  # an interrupt before this line causes a second thread, which does no harm


def unwatch(session: Any) -> None:
    """Forgets a session that has no more records to settle."""
    _settling.pop(id(session), None)


def act() -> None:
    """Acts on the objects that are gone so far."""
    with contextlib.suppress(Empty):
        while True:
            owner = _queue.get_nowait()
            if isinstance(owner, Owner):
                _owners.pop(id(owner), None)
                _do(owner.ended)
    for settle in list(_settling.values()):
        _do(settle)


def _do(act: Callable[[], None]) -> None:
    """Calls act(). An error is logged, so that the other objects are still handled."""
    try:
        act()
    except Exception:  # noqa: BLE001  no error may stop the work for other objects
        _log.exception("release the resources of a dropped object")


def _run() -> None:
    while True:
        _queue.put(_queue.get())
        time.sleep(_GATHER)
        act()


atexit.register(act)  # BYE reaches a server before it notices the end of the process
