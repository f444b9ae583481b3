"""Batch samplers that follow their own course: torch's, and one laid around any other."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from typing import Any

import torch.utils.data

from . import ranks
from .order_ahead import Course


class BatchSampler(torch.utils.data.BatchSampler):
    """torch's BatchSampler, which also tells the server the coming order and its batches their place in it.

    Works over any sampler, in any loader. The dataset is found through the sampler; give it where the sampler doesn't know it
    (SubsetRandomSampler, WeightedRandomSampler) and the loader isn't lcache's.
    """

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool, dataset: Any = None) -> None:
        super().__init__(sampler, batch_size, drop_last)
        self.silent = False  # somebody around it follows it
        self.course = Course(self, held=True)
        self._shard: Any = None  # accelerate's, that deals what this yields to the ranks
        if dataset is not None:
            self.course.bind(dataset)

    def __iter__(self) -> Iterator[list[int]]:
        if self.silent:
            return self.batches()
        caller = sys._getframe(1)
        loader = caller.f_locals.get("loader")
        if isinstance(loader, torch.utils.data.DataLoader):  # torch's own, whose iterator this call comes from: nothing else says so
            self.course.within(loader)
        shard = ranks.dealer(self, caller)
        return self.course.iterate() if shard is None else self._dealt(shard)

    def _dealt(self, shard: Any) -> Iterator[list[int]]:
        """What makes a shard yield the batches of its own rank, which a copy of it has made, each with its place."""
        if self._shard is not shard:
            self._shard = shard
            mine = copy.copy(shard)
            mine.batch_sampler = torch.utils.data.BatchSampler(self.sampler, self.batch_size, self.drop_last)
            self.course = self.course.dealt(mine)
        world = shard.num_processes
        for batch in self.course.iterate():
            if shard.split_batches:
                yield ranks.Whole(batch, shard.batch_size)
            else:
                yield from [batch] * world  # it takes one of every world batches, and a short one that is the last

    def batches(self) -> Iterator[list[int]]:
        """The batches as torch's class yields them."""
        return super().__iter__()

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch; the sampler is told, too."""
        self.course.set_epoch(epoch)


class Watching(torch.utils.data.Sampler):
    """Any batch sampler, followed from outside; all else about it is as it was."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.silent = False
        for sampler in ranks.chain(inner):
            if isinstance(sampler, BatchSampler):
                sampler.silent = True
        self.course = Course(inner)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.inner) if self.silent else self.course.iterate()

    def __len__(self) -> int:
        return len(self.inner)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def set_epoch(self, epoch: int) -> None:
        self.course.set_epoch(epoch)
