"""The orders of the current epoch and the next ones, which a forked child predicts while the training loop reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from .copied_orders import CopiedOrder
from .forked_child import Child, ChildError
from .push import is_same
from .run_ahead import RunAhead, has_length
from .wrappers import Batches

PATIENCE = 1.0  # seconds that the first batch of an epoch waits for the prediction, if the sampler has a length


class AwaitedOrders:
    """The predictions of children for one batch sampler. Only the thread of the training loop calls its methods."""

    def __init__(self, run: RunAhead) -> None:
        self._run = run
        self._child: Child | None = None
        self._has_length: bool | None = None  # None: not yet received
        self._current = -1  # the epoch that the child began with
        self._received = False  # the order of that epoch was received
        self._later: dict[int, Batches] = {}  # predictions for epochs that have not begun

    @property
    def is_pending(self) -> bool:
        """Whether more orders may arrive."""
        return self._child is not None

    def begin(self, epoch: int, orders: Callable[[Any], Iterator[CopiedOrder]]) -> None:
        """Starts a child that predicts this epoch and later ones. orders runs there, with the child's own sampler."""
        self.end()
        self._current, self._received, self._has_length = epoch, False, None
        if self._run.stopped:
            return
        try:
            self._child = self._run.child(lambda sampler: _with_length(sampler, orders))
        except ChildError as e:
            self._run.note_failure(e)

    def arrived(self, seconds: float = 0.0, whole: bool = False) -> list[CopiedOrder]:
        """The orders that arrived since the last call. Waits that long for this epoch's order, unless the sampler has no length; whole: for all orders."""
        until, found = time.monotonic() + seconds, list[CopiedOrder]()
        while self._child is not None:
            waits = whole or (self._has_length is not False and not self._received)
            try:
                values = self._child.receive(max(0.0, until - time.monotonic()) if waits else 0.0)
            except ChildError as e:
                self._child = None
                self._run.note_failure(e, later=self._received)
                break
            for value in values:
                found += self._take(value)
            if self._child.over:
                self._child = None
            elif not values:
                break
        return found

    def end(self) -> None:
        """Ends the child. Orders that it has not predicted stay unknown."""
        child, self._child = self._child, None
        if child is not None:
            child.close()

    def _take(self, value: Any) -> list[CopiedOrder]:
        if isinstance(value, bool):
            self._has_length = value
            return []
        order: CopiedOrder = value
        if order.number > self._current:
            self._later[order.number] = order.batches
            return [order]
        self._received = True
        before = self._later.get(order.number)
        self._later = {}
        if before is not None and not is_same(before, order.batches):
            self._run.note_misjudged()
        return [order]


def _with_length(sampler: Any, orders: Callable[[Any], Iterator[CopiedOrder]]) -> Iterator[Any]:
    yield has_length(sampler)
    yield from orders(sampler)
