"""Pushes a loader's orders to the servers of its datasets, and tags each batch with its position in them."""

from __future__ import annotations

import logging
import os
import tempfile
import weakref
from collections.abc import Callable
from typing import Any

from ..._client.orders import Order
from ...errors import ArgumentError, Error
from ...job import Job
from . import ranks
from .loader_job import LoaderJob
from .ownership import Ownership
from .tagged_batch import Position, TaggedBatch
from .wrappers import Batches, Translation

Orders = dict[int, Batches]  # by epoch


class Pusher:
    """Pushes to the servers of a translation's leaves.

    A server reorders its log for a pushed order. So a loader that has not pushed yet waits until its training loop requests a second batch: a look at a
    single batch must not start the work. Until then batches have no positions. A server with an empty cache gets the order at once, because it has
    nothing to reorder, and the first epoch reads the source in that order. With an unknown wrapper, the pusher also waits until the dataset was
    asked for the samples of the first batch.
    """

    def __init__(self, translation: Translation, once: Callable[..., None], loader_job: LoaderJob | None = None) -> None:
        self.translation, self._once, self._loader_job = translation, once, loader_job or LoaderJob()
        self._trial = _Trial() if translation.guessed else None
        self._pushed: Orders = {}
        self._waiting: tuple[Orders, int, int] | None = None  # (orders, epoch, rank) to be pushed when the conditions are met
        self._is_awaited = False  # add() may still add this epoch's order
        self._ownership = Ownership()
        self._push_one: Callable[[int, Batches], bool] | None = None  # pushes an epoch's order
        self._pushes = False  # the current epoch's order was pushed
        self._in_loop = False  # the training loop calls go_on(); otherwise the draw of a second batch does
        self._going_on = self._at_once = False
        self._drawn = 0  # batches of this epoch that were drawn
        self._first_unplaced = self._unplaced = 0  # the first batch of this epoch without a position, and the number of such batches

    def begin(self, orders: Orders, epoch: int, rank: int, in_loop: bool, awaited: bool = False) -> None:
        """Begins an epoch. orders are the predicted ones, of this epoch and later ones; awaited: add() may be called, until await_no_more() is.

        in_loop: the training loop calls go_on().
        """
        self._pushes, self._waiting, self._is_awaited = False, None, awaited and epoch not in orders
        self._in_loop, self._going_on, self._drawn, self._first_unplaced, self._unplaced = in_loop, False, 0, 0, 0
        self._loader_job.begin(self.translation.leaves)
        self._at_once = self._ownership.held or all(map(_is_empty, self.jobs))
        self._ownership.begin()
        if self._trial is not None and (self._trial.failed or not self._trial.begin()):
            self._once(
                "route",
                "the dataset requests other samples from lcache than the sampler yields: orders are not pushed, which costs speed. A subclass's "
                "__getitem__(index) should get the bytes by super().__getitem__(index) or, in an ImageFolder, by self.loader(path); Subset and ConcatDataset "
                "may change indices",
            )
            return
        self._waiting = orders, epoch, rank
        self._push_waiting()

    def add(self, orders: Orders) -> None:
        """Adds orders of this epoch and later ones."""
        if self._waiting is not None:
            self._waiting[0].update(orders)
            self._is_awaited = self._is_awaited and self._waiting[1] not in self._waiting[0]
            self._push_waiting()
        elif self._pushes and self._ownership.held and self._push_one is not None:
            for epoch, batches in orders.items():
                if not self._push_one(epoch, batches):
                    return

    def await_no_more(self) -> None:
        """Notes that this epoch's orders are complete."""
        self._is_awaited = False
        self._push_waiting()

    @property
    def jobs(self) -> list[Job]:
        """The loader's job at the server of each leaf."""
        return [self._loader_job.of(leaf) for leaf in self.translation.leaves]

    def go_on(self) -> None:
        """Notes that the training loop has requested a second batch, or that the epoch has ended."""
        self._going_on = self._ownership.settled = True
        self._push_waiting()

    def has_epoch(self, epoch: int) -> bool:
        """Whether the job at any server has an epoch with that number."""
        return any(_has_epoch(leaf.job, epoch) for leaf in self.translation.leaves)

    def tag(self, batch: Any, at: Position) -> Any:
        """The batch, with its loader's token, and with its position if its order was pushed."""
        self._ownership.note_batch()
        self._drawn += 1
        if self._drawn > 1 and not self._in_loop:
            self.go_on()
        else:
            self._push_waiting()
        if not isinstance(batch, list):
            return batch
        if self._waiting is None:
            if self._pushes and self._ownership.held:
                return self._tagged(batch, at)
            token = self._loader_job.token
            return batch if token is None else TaggedBatch(batch, None, None if self.translation.direct else {}, None, token)
        if self._unplaced == 0:
            self._first_unplaced = at[2]
        self._unplaced += 1
        return self._tagged(batch, None, self._trial.path if self._trial is not None and at[2] == 0 else None)

    def _push_waiting(self) -> None:
        """Pushes the waiting orders if the conditions are met."""
        if self._waiting is None or self._is_awaited or not (self._going_on or self._at_once):
            return
        if self._trial is not None and not self._trial.passed():
            return
        (orders, epoch, rank), self._waiting, self._trial = self._waiting, None, None
        self._push(orders, epoch, rank)

    def _tagged(self, batch: list[int], at: Position | None, trial: str | None = None) -> Any:
        token = self._loader_job.token
        if self.translation.direct:
            return TaggedBatch(batch, at, None, None, token)
        try:
            return TaggedBatch(batch, at, self.translation.parts(batch), trial, token)
        except (TypeError, ValueError, LookupError):
            if not self.translation.guessed:
                raise
            return batch

    def _push(self, orders: Orders, current: int, rank: int) -> None:
        """Pushes the orders that the servers do not have yet."""
        if not orders:
            return
        held = self._ownership.held
        samples = max(len(batches.flat) if isinstance(batches, Order) else sum(map(len, batches)) for batches in orders.values())
        if not self._ownership.take(self.jobs, rank, samples):
            self._once(
                "index",
                f"another loader over this dataset pushes the order of rank {rank}, so this one is served by index, which costs speed. If it replaces the "
                "other one, it pushes its order from its next epoch on. If both are used, give each loader's dataset its own job= or cache",
                logging.INFO,
            )
            return
        if not held:
            self._pushed = {}
        self._push_one = self._one_pusher(current, rank)
        for epoch, batches in orders.items():
            if not self._push_one(epoch, batches):
                return
        for epoch in [e for e in self._pushed if e < current]:
            del self._pushed[epoch]
        for job in self.jobs:
            job.forget_orders(current, rank)
        self._pushes = True

    def digest(self, epoch: int) -> str | None:
        """The digest of the order that was pushed to the first server for an epoch of this rank. None: none was pushed."""
        batches = self._pushed.get(epoch)
        if not self._pushes or batches is None:
            return None
        order = self.translation.part_orders(batches)[self.translation.leaves[0].lcache_id]
        return ranks.digest(order.flat if isinstance(order, Order) else [index for batch in order for index in batch])

    def later(self) -> Callable[[int, Order], bool] | None:
        """A function that pushes later epochs, from any thread. It does not refer to this object. None while the current epoch's order is not pushed."""
        return self._push_one if self._pushes and self._going_on and self._ownership.held else None

    def _one_pusher(self, current: int, rank: int) -> Callable[[int, Batches], bool]:
        """A function that pushes one epoch's order to each server that does not have it. It returns False if no more orders can be pushed."""
        translation, once, pushed, ended = self.translation, self._once, self._pushed, self._ownership.ended
        unplaced = self._first_unplaced, self._unplaced
        jobs = list(zip(translation.leaves, self.jobs))

        def push(epoch: int, batches: Batches) -> bool:
            if is_same(pushed.get(epoch), batches):
                return True
            try:
                parts = translation.part_orders(batches)
            except (TypeError, ValueError, LookupError, OverflowError):
                if not translation.guessed:
                    raise
                return False
            for leaf, job in jobs:
                if epoch != current and not _has_epoch(job, epoch):
                    continue
                with job.pushing:
                    if ended.is_set():
                        return False  # another loader pushes its own orders
                    try:
                        job.push_order(epoch, rank, parts[leaf.lcache_id])
                    except ArgumentError as e:
                        once("push", f"the server refuses the order of epoch {epoch} rank {rank}, which costs speed: {e}", logging.INFO)
                        if epoch == current:
                            return False
                    if epoch == current:  # before the next push, so that the server counts these batches before any others
                        job.report_unplaced(epoch, rank, *unplaced)
            pushed[epoch] = batches
            return True

        return push


def is_same(a: Batches | None, b: Batches) -> bool:
    """Whether an order was pushed already."""
    if a is b:
        return True
    if isinstance(a, Order) and isinstance(b, Order):
        return a.digest == b.digest
    return isinstance(a, list) and a == b


def _is_empty(job: Job) -> bool:
    """Whether a server's cache is empty. False if that is unknown."""
    try:
        return bool(job.stats()["cache"]["used_bytes"] == 0)
    except (Error, KeyError, TypeError):
        return False  # the next request reports the error


def _has_epoch(job: Job, epoch: int) -> bool:
    return job.epochs <= 0 or epoch < job.epochs  # 0: unknown


class _Trial:
    """Checks that a dataset was asked for the samples of the first batch. The process that was asked, such as a worker, removes a file to report it."""

    def __init__(self) -> None:
        self.path = ""  # of the file
        self.failed = False

    def begin(self) -> bool:
        """Begins the trial in the first epoch. A trial is never repeated: in a later epoch it returns whether the first was passed."""
        if self.path:
            self.failed = not self.passed()
            return not self.failed
        fd, self.path = tempfile.mkstemp(prefix="lcache-first-batch-")
        os.close(fd)
        weakref.finalize(self, _remove, self.path)
        return True

    def passed(self) -> bool:
        return not os.path.exists(self.path)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
