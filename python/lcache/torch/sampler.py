"""Batch samplers that push their order in advance: torch's BatchSampler, and a wrapper around any other batch sampler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch.utils.data

from ._order import frameworks, ranks
from ._order.order_ahead import OrderAhead
from ._order.stateful_batches import is_stateful


class BatchSampler(torch.utils.data.BatchSampler):
    """torch's BatchSampler, which also pushes its order to the server in advance, and tags each batch with its position.

    It works over any sampler and in any loader. It finds the dataset through the sampler. Give dataset= if the sampler does not have it
    (SubsetRandomSampler, WeightedRandomSampler) and the loader isn't lcache's.
    """

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool, dataset: Any = None) -> None:
        super().__init__(sampler, batch_size, drop_last)
        self.silent = False  # True: a wrapper around this sampler pushes and tags instead
        self.order_ahead = OrderAhead(self, held=True)
        self._shard: Any = None  # accelerate's shard, which deals these batches to the ranks
        if dataset is not None:
            self.order_ahead.bind(dataset)

    def __iter__(self) -> Iterator[Any]:
        if self.silent:
            return self.batches()
        loader, shard = frameworks.iterating(self)
        if loader is not None:
            self.order_ahead.within(loader)
        return self.order_ahead.iterate() if shard is None else self._dealt(shard)

    def _dealt(self, shard: Any) -> Iterator[Any]:
        """Yields batches from which accelerate's shard takes its rank's batches, each with its position. A copy of the shard deals them here first."""
        if self._shard is not shard:
            self._shard = shard
            plain = torch.utils.data.BatchSampler(self.sampler, self.batch_size, self.drop_last)
            self.order_ahead = self.order_ahead.dealt(frameworks.copied_shard(shard, plain))
        yield from frameworks.fed_to_shard(shard, self.order_ahead.iterate())

    @property
    def cuts_as_torch(self) -> bool:
        """Whether the batches come from torch's own class, and no subclass changes them."""
        return type(self).__iter__ is BatchSampler.__iter__ and type(self).batches is BatchSampler.batches

    def batches(self) -> Iterator[list[int]]:
        """The batches as torch's class yields them."""
        batches: Iterator[list[int]] = super().__iter__()
        return batches

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration, here and in the sampler."""
        self.order_ahead.set_epoch(epoch)


def watched_sampler(inner: Any) -> WatchedSampler:
    """A wrapper around a batch sampler, which has a state if the batch sampler has one."""
    return (StatefulWatchedSampler if is_stateful(inner) else WatchedSampler)(inner)


class WatchedSampler(torch.utils.data.Sampler):
    """A wrapper around any batch sampler, which pushes its order and tags its batches. Everything else is the batch sampler's own."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.silent = False
        for sampler in ranks.chain(inner):
            if isinstance(sampler, BatchSampler):
                sampler.silent = True
        self.order_ahead = OrderAhead(inner)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.inner) if self.silent else self.order_ahead.iterate()

    def __len__(self) -> int:
        return len(self.inner)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration, here and in the sampler."""
        self.order_ahead.set_epoch(epoch)


class StatefulWatchedSampler(WatchedSampler):
    """A wrapper around a batch sampler with a state. Since Python 3.12 torchdata requires methods of the class."""

    def state_dict(self) -> Any:
        return self.inner.state_dict()

    def load_state_dict(self, state: Any) -> None:
        self.inner.load_state_dict(state)
