"""What the servers are told of a course: the order of each epoch, and of each batch its place in it."""

from __future__ import annotations

import logging
import os
import tempfile
import weakref
from collections.abc import Callable
from typing import Any

from ..errors import ArgumentError
from ..job import Job
from .claim import Claim
from .route import Route
from .tags import TaggedBatch

Order = dict  # epoch → list of batches


class Publisher:
    """Tells the servers below a route. Through a wrapper that lcache does not know it waits for what the first batch asks for."""

    def __init__(self, route: Route, once: Callable[..., None]) -> None:
        self.route, self._once = route, once
        self._trial = _Trial() if route.guessed else None
        self._known: dict[int, list[list[int]]] = {}  # what the servers know
        self._coming: tuple[Order, int, int] | None = None  # what they are told when the trial has gone well
        self._claim = Claim()
        self._ours = False

    def begin(self, expected: Order, epoch: int, rank: int) -> None:
        """An epoch begins; expected: the batches of this one and of the next ones, as far as they are known."""
        self._ours, self._coming = False, None
        self._claim.begin()
        if self._trial is None:
            self._push(expected, epoch, rank)
        elif self._trial.ended or not self._trial.begin():
            self._once("route", "the dataset's wrapper asks lcache for other samples than the sampler says: nothing is pushed, which costs speed")
        else:
            self._coming = expected, epoch, rank

    def expects(self, epoch: int) -> bool:
        """Whether any server's job has an epoch of that number."""
        return any(_has(leaf.job, epoch) for leaf in self.route.leaves)

    def batch(self, batch: Any, at: tuple[int, int, int]) -> Any:
        """The batch with its place, if this course says the order of its rank."""
        self._claim.yielded()
        if not isinstance(batch, list):
            return batch
        if self._coming is not None:
            assert self._trial is not None
            if self._trial.agreed():
                (expected, epoch, rank), self._coming, self._trial = self._coming, None, None
                self._push(expected, epoch, rank)
            else:
                return self._tagged(batch, None, self._trial.path if at[2] == 0 else None)
        return self._tagged(batch, at) if self._ours and self._claim.holds else batch

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
            self._known[epoch] = batches
        for epoch in [e for e in self._known if e < current]:
            del self._known[epoch]
        for leaf in self.route.leaves:
            leaf.job._forget(current, rank)
        self._ours = True


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
