"""Batches that know where in the schedule they belong, on their way from a batch sampler to a dataset, maybe in another process."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

At = tuple  # (epoch, rank, batch)


class TaggedBatch(list):
    """A batch of dataset indices, as any batch sampler yields it, that knows its place: at = (epoch, rank, batch).

    parts is for datasets that ask one sample at a time: by dataset, the batch's indices in it. Whoever iterates over the batch is
    noted for the thread, because Subset and ConcatDataset hand on plain lists and single indices.
    """

    __slots__ = ("at", "parts")

    def __init__(self, indices: Iterable[int], at: At, parts: dict[str, list[int]] | None = None) -> None:
        super().__init__(indices)
        self.at, self.parts = at, parts

    def __iter__(self) -> Iterator[int]:
        _thread.batch = self
        return super().__iter__()

    def __reduce__(self) -> Any:
        return TaggedBatch, (self[:], self.at, self.parts)


class _Thread(threading.local):
    batch: TaggedBatch | None = None


_thread = _Thread()


def position(indices: Any) -> At | None:
    """Where a batch belongs that a dataset is asked for; None if nobody said. The answer for a plain list is used up with it."""
    if isinstance(indices, TaggedBatch):
        return indices.at
    last, _thread.batch = _thread.batch, None
    return last.at if last is not None and len(last) == len(indices) else None


def iterated() -> TaggedBatch | None:
    """The batch that this thread last began to iterate over."""
    return _thread.batch
