"""What the servers are told of a course: the order of each epoch, and of each batch its place in it."""

from __future__ import annotations

import logging
import os
import tempfile
import weakref
from collections.abc import Callable
from typing import Any

from ..errors import ArgumentError, Error
from ..job import Job
from .ownership import Claim
from .wrappers import Route
from .tagged_batch import TaggedBatch

Order = dict  # epoch → list of batches


class Publisher:
    """Tells the servers below a route.

    Servers sort what they hold into the order that they are told. So a loader that has told them nothing yet waits until its training loop asks
    for a second batch: one that looks at a single batch starts no sort. Until then batches have no places. A server that holds nothing is told at
    once: it has nothing to sort, and the first epoch reads the source in order. Through a wrapper that lcache does not know the publisher also
    waits for what the first batch asks for.
    """

    def __init__(self, route: Route, once: Callable[..., None]) -> None:
        self.route, self._once = route, once
        self._trial = _Trial() if route.guessed else None
        self._known: dict[int, list[list[int]]] = {}  # what the servers know
        self._coming: tuple[Order, int, int] | None = None  # what they are told when the loop goes on and the trial has gone well
        self._claim = Claim()
        self._ours = False
        self._looped = False  # a training loop says that it goes on; without one, drawing a second batch does
        self._goes_on = self._at_once = False
        self._drawn = 0  # batches of this epoch
        self._first = self._unplaced = 0  # of them, from which one on and how many went without their places

    def begin(self, expected: Order, epoch: int, rank: int, looped: bool) -> None:
        """An epoch begins; expected: the batches of this one and of the next ones, as far as they are known. looped: the training loop
        will say that it goes on."""
        self._ours, self._coming = False, None
        self._looped, self._goes_on, self._drawn, self._first, self._unplaced = looped, False, 0, 0, 0
        self._at_once = self._claim.holds or all(_holds_nothing(leaf.job) for leaf in self.route.leaves)
        self._claim.begin()
        if self._trial is not None and (self._trial.ended or not self._trial.begin()):
            self._once("route", "the dataset's wrapper asks lcache for other samples than the sampler says: nothing is pushed, which costs speed")
            return
        self._coming = expected, epoch, rank
        self._push_coming()

    def go_on(self) -> None:
        """The training loop asks for more than the epoch's first batch, or the epoch is over."""
        self._goes_on = self._claim.settled = True
        self._push_coming()

    def expects(self, epoch: int) -> bool:
        """Whether any server's job has an epoch of that number."""
        return any(_has(leaf.job, epoch) for leaf in self.route.leaves)

    def batch(self, batch: Any, at: tuple[int, int, int]) -> Any:
        """The batch with its place, if this course says the order of its rank."""
        self._claim.yielded()
        self._drawn += 1
        if self._drawn > 1 and not self._looped:
            self.go_on()
        else:
            self._push_coming()
        if not isinstance(batch, list):
            return batch
        if self._coming is None:
            return self._tagged(batch, at) if self._ours and self._claim.holds else batch
        if self._unplaced == 0:
            self._first = at[2]
        self._unplaced += 1
        return self._tagged(batch, None, self._trial.path if self._trial is not None and at[2] == 0 else None)

    def _push_coming(self) -> None:
        if self._coming is None or not (self._goes_on or self._at_once) or self._trial is not None and not self._trial.agreed():
            return
        (expected, epoch, rank), self._coming, self._trial = self._coming, None, None
        self._push(expected, epoch, rank)

    def _tagged(self, batch: Any, at: Any, trial: str | None = None) -> Any:
        if self.route.direct:
            return TaggedBatch(batch, at)
        parts = self._parts([batch])
        return batch if parts is None else TaggedBatch(batch, at, parts[0], trial)

    def _parts(self, batches: list[Any]) -> list[dict[str, list[int]]] | None:
        """Each batch's part of each leaf; None if a wrapper is asked for what is no index of the dataset that it holds."""
        try:
            return [self.route.batch(batch) for batch in batches]
        except (TypeError, ValueError, LookupError):
            if not self.route.guessed:
                raise
            return None

    def _push(self, expected: Order, current: int, rank: int) -> None:
        """Pushes what the servers do not know yet."""
        if not expected:
            return
        held = self._claim.holds
        samples = max(sum(map(len, batches)) for batches in expected.values())
        if not self._claim.take([leaf.job for leaf in self.route.leaves], rank, samples):
            self._once("index", f"another loader over this dataset says the order of rank {rank}: this one is served by index, which costs speed. If it takes the place of "
                       "the other one, it says the order from its next epoch on; if both are used, give one of them a dataset with a cache of its own", logging.INFO)
            return
        if not held:
            self._known = {}
        for epoch, batches in expected.items():
            if self._known.get(epoch) == batches:
                continue
            parts = None if self.route.direct else self._parts(batches)
            if parts is None and not self.route.direct:
                return
            for leaf in self.route.leaves:
                if epoch != current and not _has(leaf.job, epoch):
                    continue
                try:
                    leaf.job.push_order(epoch, rank, batches if parts is None else [part[leaf._key] for part in parts])
                except ArgumentError as e:
                    self._once("push", f"the server does not take the order of epoch {epoch} rank {rank}, which costs speed: {e}", logging.INFO)
                    if epoch == current:
                        return
                if epoch == current:  # before the answer to what is pushed next, so that it is counted before other batches are
                    leaf.job.report_unplaced(epoch, rank, self._first, self._unplaced)
            self._known[epoch] = batches
        for epoch in [e for e in self._known if e < current]:
            del self._known[epoch]
        for leaf in self.route.leaves:
            leaf.job.forget_orders(current, rank)
        self._ours = True


def _holds_nothing(job: Job) -> bool:
    """Whether a server's cache is empty; False where it does not say."""
    try:
        return bool(job.stats()["cache"]["used_bytes"] == 0)
    except (Error, KeyError, TypeError):
        return False  # whatever is asked next says what is wrong


def _has(job: Job, epoch: int) -> bool:
    return job.epochs <= 0 or epoch < job.epochs  # 0: it is not known how many


class _Trial:
    """Whether a dataset, maybe in a worker, was asked for just what the first batch says. It tells by removing a file, which any process can."""

    def __init__(self) -> None:
        self.path = ""
        self.ended = False

    def begin(self) -> bool:
        """Once: there is no second trial."""
        if self.path:
            self.ended = not self.agreed()
            return not self.ended
        fd, self.path = tempfile.mkstemp(prefix="lcache-first-batch-")
        os.close(fd)
        weakref.finalize(self, _remove, self.path)
        return True

    def agreed(self) -> bool:
        return not os.path.exists(self.path)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
