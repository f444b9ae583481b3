"""Ctrl-C while torch's workers run: held back wherever it could leave a lock locked.

Python raises KeyboardInterrupt between any two steps of the main thread. If it does so while multiprocessing takes or releases a lock, such as that of a
queue in which torch puts its next request, the lock stays locked, and torch waits for it for ever when it ends its workers. In a worker, so does the lock of
the event that ends them. While a process is forked, the interrupt is printed and lost.
"""

from __future__ import annotations

import inspect
import signal
import threading
import traceback
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any


class HeldInterrupts:
    """Within the block, SIGINT waits from hold() to release(), and from the beginning to the first release().

    A forked child inherits it as it is. A copy for a child that is not forked must be entered there. It does nothing in other threads than the main thread,
    and if SIGINT has no handler in Python.
    """

    def __init__(self) -> None:
        self._held = True
        self._came = False
        self._handler: Callable[[int, FrameType | None], Any] | None = None  # the program's; None: not within the block

    def __enter__(self) -> HeldInterrupts:
        handler = signal.getsignal(signal.SIGINT)
        if self._handler is None and callable(handler) and threading.current_thread() is threading.main_thread():
            self._handler = handler
            signal.signal(signal.SIGINT, self._receive)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Ends the workers of an error, and calls the program's handler if SIGINT waits. What the handler raises takes the place of the error.

        An error's frames keep the workers, so they are cleared. An interrupt that comes after KeyboardInterrupt is dropped.
        """
        if self._handler is not None:
            self.hold()
            if trace is not None:
                traceback.clear_frames(trace)
            if isinstance(error, KeyboardInterrupt):
                self._came = False
            if signal.getsignal(signal.SIGINT) == self._receive:  # not if the program's handler has set another one
                signal.signal(signal.SIGINT, self._handler)
            self.release()
            self._handler = None

    def __reduce__(self) -> tuple[type[HeldInterrupts], tuple[()]]:
        return HeldInterrupts, ()

    def hold(self) -> None:
        """SIGINT waits from now on."""
        self._held = True

    def release(self) -> None:
        """Calls the program's handler if SIGINT waits. From now on SIGINT calls it at once."""
        self._held = False
        if self._came:
            self._came = False
            self._call(signal.SIGINT, inspect.currentframe())

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._held:
            self._came = True
        else:
            self._call(number, frame)

    def _call(self, number: int, frame: FrameType | None) -> None:
        if self._handler is not None:
            self.hold()  # if the handler raises, a further interrupt waits until the workers have ended
            self._handler(number, frame)
            self.release()
