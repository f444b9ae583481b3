"""Batches tagged with their position in the schedule, on their way from a batch sampler to a dataset, which may be in a worker process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

Position = tuple[int, int, int]  # (epoch, rank, batch)


class Following(NamedTuple):
    """The batch that the loop is expected to request next."""

    position: Position
    indices: Callable[[], Sequence[int]]
    sent: list[Any]  # the last job that a batch of this epoch was requested from


class TaggedBatch(list[int]):
    """A batch of dataset indices, as a batch sampler yields it, with its position.

    parts: for lcache datasets below other datasets, the batch's indices in each of them, by the lcache dataset's id. Iterating over a batch records the
    batch for the thread, because Subset and ConcatDataset pass on only plain lists and single indices. trial: the path of a file that a dataset removes
    once every dataset was asked for its part; until then `at` is None. token: the loader's job; None: the dataset's job. following: the next batch,
    which a dataset may request early. It is not sent to other processes.
    """

    __slots__ = ("asked", "at", "following", "parts", "size", "token", "trial")

    def __init__(
        self, indices: Iterable[int], at: Position | None, parts: dict[str, list[int]] | None = None, trial: str | None = None, token: str | None = None
    ) -> None:
        super().__init__(indices)
        self.at, self.parts, self.size, self.trial, self.token = at, parts, len(self), trial, token
        self.following: Following | None = None
        self.asked: dict[str, int] = {}  # by dataset, the number of indices of its part that were requested during the trial, in order

    def __iter__(self) -> Iterator[int]:
        _thread.batch = self
        return super().__iter__()

    def __reduce__(self) -> Any:
        return TaggedBatch, (self[:], self.at, self.parts, self.trial, self.token)

    def record_asked(self, dataset_id: str, indices: list[int]) -> None:
        """Records that one sample or a batch was requested from a dataset during the trial. Ends the trial once all parts were requested.

        A wrapper that requests samples one by one may request more: one sample twice, or a second sample to mix in.
        """
        part = (self.parts or {}).get(dataset_id, [])
        at = self.asked.get(dataset_id, 0)
        if len(indices) == 1 and at < len(part) and indices[0] == part[at]:
            self.asked[dataset_id] = at + 1
        elif indices == part:
            self.asked[dataset_id] = len(part)
        if self.trial and self.parts and all(self.asked.get(k, 0) == len(part) for k, part in self.parts.items()):
            try:
                os.unlink(self.trial)
            except OSError:
                pass  # the loader is gone
            self.trial = None


class FirstOfBatch(int):
    """The first index of a batch in the server's own order. It has the batch's position and number of samples."""

    at: Position
    size: int

    def __new__(cls, index: int, at: Position, size: int) -> FirstOfBatch:
        first = super().__new__(cls, index)
        first.at, first.size = at, size
        return first

    def __reduce__(self) -> Any:
        return FirstOfBatch, (int(self), self.at, self.size)


class _Thread(threading.local):
    batch: TaggedBatch | None = None


_thread = _Thread()


def position_of(indices: Any, plain: list[int], dataset_id: str) -> Position | None:
    """The position of a batch that is requested from a dataset, given as received and as plain indices. None: unknown."""
    first = indices[0] if plain else None
    if isinstance(first, FirstOfBatch):
        return first.at if first.size == len(plain) else None
    batch = indices if isinstance(indices, TaggedBatch) else _thread.batch
    if batch is None:
        return None
    if batch.parts is None:
        # A batch that grew has lost its position: accelerate extends short batches in place.
        return batch.at if batch is indices and len(batch) == batch.size else None
    return batch.at if batch.parts.get(dataset_id) == plain else None


def forget_iterated() -> None:
    """Notes that the batch that this thread last began to iterate over was fetched."""
    _thread.batch = None


def last_iterated() -> TaggedBatch | None:
    """The batch that this thread last began to iterate over."""
    return _thread.batch
