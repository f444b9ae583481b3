"""Batches that know where in the schedule they belong, on their way from a batch sampler to a dataset, maybe in another process."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from typing import Any

At = tuple  # (epoch, rank, batch)


class TaggedBatch(list):
    """A batch of dataset indices, as any batch sampler yields it, that knows its place: at = (epoch, rank, batch).

    parts is for datasets below others: by dataset, the batch's indices in it. A batch that is iterated over is noted for the
    thread, because Subset and ConcatDataset hand on plain lists and single indices. trial is a file that is removed once every dataset was
    asked for just its part; at is None meanwhile.
    """

    __slots__ = ("asked", "at", "parts", "size", "trial")

    def __init__(self, indices: Iterable[int], at: At | None, parts: dict[str, list[int]] | None = None, trial: str | None = None) -> None:
        super().__init__(indices)
        self.at, self.parts, self.size, self.trial = at, parts, len(self), trial
        self.asked: dict[str, list[int]] = {}  # by dataset, what the trial saw

    def __iter__(self) -> Iterator[int]:
        _thread.batch = self
        return super().__iter__()

    def __reduce__(self) -> Any:
        return TaggedBatch, (self[:], self.at, self.parts, self.trial)

    def saw(self, key: str, indices: list[int]) -> None:
        """The dataset named key was asked for samples while this batch was on trial."""
        self.asked.setdefault(key, []).extend(indices)
        if self.trial and self.parts and {k: part for k, part in self.parts.items() if part} == self.asked:
            try:
                os.unlink(self.trial)
            except OSError:
                pass  # the loader is gone
            self.trial = None


class _Thread(threading.local):
    batch: TaggedBatch | None = None


_thread = _Thread()


def position(indices: Any, plain: list[int], key: str) -> At | None:
    """Where a batch belongs that the dataset named key is asked for, as it came and as plain indices; None if nobody said."""
    batch = indices if isinstance(indices, TaggedBatch) else _thread.batch
    if batch is None or batch.parts is None:
        # accelerate makes up full batches in place
        return batch.at if batch is not None and batch is indices and len(batch) == batch.size else None
    return batch.at if batch.parts.get(key) == plain else None


def iterated() -> TaggedBatch | None:
    """The batch that this thread last began to iterate over."""
    return _thread.batch
