"""Batches tagged with their position in the schedule, on their way from a batch sampler to a dataset, which may be in a worker process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

Position = tuple[int, int, int]  # (epoch, rank, batch)


class Following(NamedTuple):
    """The batch that the loop is expected to ask for next."""

    position: Position
    indices: Callable[[], Sequence[int]]
    sent: list[Any]  # the last job that it, or another one of its epoch, was requested from


class TaggedBatch(list[int]):
    """A batch of dataset indices, as any batch sampler yields it, with its position.

    parts is for lcache datasets below other datasets: by the lcache dataset's id, the batch's indices in it. Iterating over a batch records it
    for the thread, because Subset and ConcatDataset pass on plain lists and single indices. trial is the path of a file, which a dataset removes once
    every dataset was asked for its part; at is None meanwhile. token names the loader's job; None: the job is the dataset's.
    following is the batch behind it, which a dataset may request early. Another process does not get it.
    """

    __slots__ = ("asked", "at", "following", "parts", "size", "token", "trial")

    def __init__(
        self, indices: Iterable[int], at: Position | None, parts: dict[str, list[int]] | None = None, trial: str | None = None, token: str | None = None
    ) -> None:
        super().__init__(indices)
        self.at, self.parts, self.size, self.trial, self.token = at, parts, len(self), trial, token
        self.following: Following | None = None
        self.asked: dict[str, int] = {}  # by dataset, how many indices of its part were asked for during the trial, in their order

    def __iter__(self) -> Iterator[int]:
        _thread.batch = self
        return super().__iter__()

    def __reduce__(self) -> Any:
        return TaggedBatch, (self[:], self.at, self.parts, self.trial, self.token)

    def record_asked(self, dataset_id: str, indices: list[int]) -> None:
        """Records that a dataset was asked for samples during the trial, for a single one or for a batch. Ends the trial once all parts were asked for.

        A wrapper that asks one by one may ask for more: for one sample twice, or for a second one to mix in.
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
    """An index with which a batch of the server's own order begins: the batch's position, and how many samples it has."""

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
    """The position of the batch that a dataset is asked for, as it came and as plain indices. None: unknown."""
    first = indices[0] if plain else None
    if isinstance(first, FirstOfBatch):
        return first.at if first.size == len(plain) else None
    batch = indices if isinstance(indices, TaggedBatch) else _thread.batch
    if batch is None:
        return None
    if batch.parts is None:
        # A batch that grew has lost its position: accelerate fills up short batches in place.
        return batch.at if batch is indices and len(batch) == batch.size else None
    return batch.at if batch.parts.get(dataset_id) == plain else None


def forget_iterated() -> None:
    """Notes that the batch which this thread last began to iterate over has been fetched."""
    _thread.batch = None


def last_iterated() -> TaggedBatch | None:
    """The batch that this thread last began to iterate over."""
    return _thread.batch
