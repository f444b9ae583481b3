"""The insides of other packages that lcache.torch relies on: those of torch's DataLoader, of accelerate, Lightning and torchdata.

None of this is part of a documented interface, so that another release may change it. TESTED names the releases that the tests pass with, and a test
compares it with what is installed. Where a release differs, the samples stay right: orders are not pushed, or a loader can't be watched.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch.utils.data
from torch.utils.data import Sampler

TESTED = {"torch": "2.15.0", "accelerate": "1.15.0", "lightning": "2.6.6", "torchdata": "0.11.0", "transformers": "5.23.0"}

# accelerate's BatchSamplerShard: how many ranks there are, and which one this is.
SHARD_RANK = ("num_processes", "process_index")


def iterating(batch_sampler: Any) -> tuple[Any, Any]:
    """(loader, shard) that is calling batch_sampler.__iter__, which calls this function; None where no such object is the caller.

    loader is a torch DataLoader: its iterator's constructor has the loader as the local variable `loader`. shard is accelerate's
    BatchSamplerShard with more than one process: its generator has itself as `self`. Only the call reveals either: neither torch nor accelerate's
    prepare() tells the batch sampler.
    """
    variables = sys._getframe(2).f_locals
    loader, shard = variables.get("loader"), variables.get("self")
    if not isinstance(loader, torch.utils.data.DataLoader):
        loader = None
    if shard is None or getattr(shard, "batch_sampler", None) is not batch_sampler or not isinstance(getattr(shard, "split_batches", None), bool):
        return loader, None
    return loader, shard if shard.batch_size is not None and shard.num_processes > 1 else None


def copied_shard(shard: Any, batch_sampler: Any) -> Any:
    """A shard that deals the batches of another batch sampler to the same rank."""
    twin = copy.copy(shard)
    twin.batch_sampler = batch_sampler
    return twin


def fed_to_shard(shard: Any, batches: Iterable[Any]) -> Iterator[Any]:
    """What a shard has to iterate over so that it yields exactly these batches."""
    for batch in batches:
        if shard.split_batches:
            yield WholeBatch(batch, shard.batch_size)
        else:
            yield from [batch] * shard.num_processes  # the shard takes one of each num_processes batches, and a short one that is the last


def is_shard(batches: Any) -> bool:
    """Whether a batch sampler is accelerate's shard, and of no other class."""
    return _is_accelerates(batches, "BatchSamplerShard") and batches.batch_size is not None


def is_reseeded(sampler: Any) -> bool:
    """Whether a sampler is accelerate's SeedableRandomSampler. It seeds its generator with initial_seed + epoch before each epoch."""
    return _is_accelerates(sampler, "SeedableRandomSampler")


def _is_accelerates(value: Any, name: str) -> bool:
    return (type(value).__module__, type(value).__name__) == ("accelerate.data_loader", name)


def shard_signature(shard: Any) -> tuple[Any, ...]:
    """Inputs of a shard's batches, in addition to the batch sampler's."""
    return shard.num_processes, shard.process_index, shard.split_batches, shard.even_batches, shard.batch_size, shard.drop_last


def dealt(shard: Any, total: int, batch_size: int, drop_last: bool) -> Iterator[Sequence[int]]:
    """The batches that a shard deals to its rank, as places in an order of `total` indices. The shard's own code deals, but ranges instead of lists."""
    return iter(copied_shard(shard, _Places(total, batch_size, drop_last, shard.num_processes)))


class _Places:
    """A batch sampler of places in an order. The batches that a shard may add to others are lists: the first ones of all ranks, and a short one."""

    def __init__(self, total: int, batch_size: int, drop_last: bool, world: int) -> None:
        self.batch_size, self.drop_last = batch_size, drop_last
        self._total, self._world = total, world

    def __len__(self) -> int:
        return self._total // self.batch_size if self.drop_last else -(-self._total // self.batch_size)

    def __iter__(self) -> Iterator[Sequence[int]]:
        for number in range(len(self)):
            batch = range(number * self.batch_size, min((number + 1) * self.batch_size, self._total))
            yield list(batch) if number < self._world or len(batch) < self.batch_size else batch


class WholeBatch:
    """Stands for a full batch of all ranks together. The shard cuts a slice out of it and gets the rank's own batch, which may be a short one."""

    def __init__(self, part: Any, size: int) -> None:
        self._part, self._size = part, size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> Any:
        return self._part


def is_loader(value: Any) -> bool:
    """Whether an object is a torch DataLoader, or one of accelerate's, which hold one."""
    return isinstance(getattr(value, "base_dataloader", value), torch.utils.data.DataLoader)


def base_loader(loader: Any) -> Any:
    """The torch DataLoader itself, which accelerate's loaders hold."""
    return vars(loader).get("base_dataloader", loader)


def has_own_state(loader: Any) -> bool:
    """Whether a loader's class has a state_dict of its own, as torchdata's StatefulDataLoader has."""
    return hasattr(type(base_loader(loader)), "state_dict")


def set_class(loader: Any, kind: type) -> None:
    """Gives a loader another class. accelerate's loaders have a property named __class__, so that plain assignment does nothing there."""
    object.__dict__["__class__"].__set__(loader, kind)


def set_batch_sampler(loader: Any, batch_sampler: Any) -> None:
    """Replaces the batch sampler of a loader that was not iterated over yet. torch refuses plain assignment."""
    vars(base_loader(loader))["batch_sampler"] = batch_sampler


def sampler_in_dataset(dataset: Any) -> Any:
    """The sampler that Lightning's distributed sampler wraps in a dataset of its own; None for any other dataset."""
    return getattr(dataset, "_sampler", None)


def wrapped_sampler(sampler: Any) -> Any:
    """The sampler that another one wraps; None if there is none. Lightning's wrapper has it as _sampler."""
    return next((s for s in (getattr(sampler, name, None) for name in ("batch_sampler", "sampler", "_sampler")) if s is not None), None)


def inner_sampler(sampler: Any) -> Any:
    """The sampler that another one iterates over; None if there is none. Lightning's wrappers hold it in a dataset of their own."""
    inner = next((s for s in (getattr(sampler, name, None) for name in ("_batch_sampler", "batch_sampler", "sampler")) if s is not None), None)
    return sampler_in_dataset(getattr(sampler, "dataset", None)) if inner is None else inner


def holds_sampler(dataset: Any) -> bool:
    """Whether a dataset is Lightning's, which yields the indices of a sampler that it holds."""
    return any(isinstance(value, Sampler) for value in vars(dataset).values())
