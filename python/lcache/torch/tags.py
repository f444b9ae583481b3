"""Batches that know where in the schedule they belong, on their way from a batch sampler to a dataset, maybe in another process."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

At = tuple  # (epoch, rank, batch)


class TaggedBatch(list):
    """A batch of dataset indices, as any batch sampler yields it, that knows its place: at = (epoch, rank, batch).

    parts is for datasets below others: by dataset, the batch's indices in it. A batch that is iterated over is noted for the
    thread, because Subset and ConcatDataset hand on plain lists and single indices.
    """

    __slots__ = ("at", "parts", "size")

    def __init__(self, indices: Iterable[int], at: At, parts: dict[str, list[int]] | None = None) -> None:
        super().__init__(indices)
        self.at, self.parts, self.size = at, parts, len(self)

    def __iter__(self) -> Iterator[int]:
        _thread.batch = self
        return super().__iter__()

    def __reduce__(self) -> Any:
        return TaggedBatch, (self[:], self.at, self.parts)


class _Thread(threading.local):
    batch: TaggedBatch | None = None


_thread = _Thread()


def position(indices: Any, key: str) -> At | None:
    """Where a batch belongs that the dataset named key is asked for; None if nobody said."""
    if isinstance(indices, TaggedBatch):
        return indices.at if len(indices) == indices.size else None  # accelerate makes up full batches in place
    last = _thread.batch
    return last.at if last is not None and last.parts and last.parts.get(key) == indices else None


def iterated() -> TaggedBatch | None:
    """The batch that this thread last began to iterate over."""
    return _thread.batch
