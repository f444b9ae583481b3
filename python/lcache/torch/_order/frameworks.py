"""The internals of other packages that lcache.torch relies on: torch's DataLoader, accelerate, Lightning and torchdata.

None of them is a documented interface, so another release may change it. TESTED lists the releases that the tests pass with, and a test compares it with
the installed ones. With a different release the samples stay right, but orders may not be pushed, or a loader can't be watched.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch.utils.data
from torch.utils.data import Sampler

TESTED = {"torch": "2.15.0", "accelerate": "1.15.0", "lightning": "2.6.6", "torchdata": "0.11.0", "transformers": "5.23.0"}

# Attributes of accelerate's BatchSamplerShard: the world size and the rank.
SHARD_RANK = ("num_processes", "process_index")


def iterating(batch_sampler: Any) -> tuple[Any, Any]:
    """(loader, shard) that call batch_sampler.__iter__, which calls this function. None stands for an object that is not the caller.

    loader is a torch DataLoader, found as the local variable `loader` of its iterator's constructor. shard is accelerate's BatchSamplerShard with more
    than one process, found as `self` of its generator. Only the call stack shows them: neither torch nor accelerate's prepare() tells the batch sampler.
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
    """The batches that a shard must iterate over to yield exactly `batches`."""
    for batch in batches:
        if shard.split_batches:
            yield WholeBatch(batch, shard.batch_size)
        else:
            yield from [batch] * shard.num_processes  # of each num_processes batches the shard takes one, and it takes a short last one


def is_shard(batches: Any) -> bool:
    """Whether a batch sampler is accelerate's shard, and not of a subclass."""
    return _is_accelerates(batches, "BatchSamplerShard") and batches.batch_size is not None


def is_reseeded(sampler: Any) -> bool:
    """Whether a sampler is accelerate's SeedableRandomSampler. It seeds its generator with initial_seed + epoch before each epoch."""
    return _is_accelerates(sampler, "SeedableRandomSampler")


def _is_accelerates(value: Any, name: str) -> bool:
    return (type(value).__module__, type(value).__name__) == ("accelerate.data_loader", name)


def shard_signature(shard: Any) -> tuple[Any, ...]:
    """The inputs of a shard's batches, in addition to the batch sampler's inputs."""
    return shard.num_processes, shard.process_index, shard.split_batches, shard.even_batches, shard.batch_size, shard.drop_last


def dealt(shard: Any, total: int, batch_size: int, drop_last: bool) -> Iterator[Sequence[int]]:
    """The batches that a shard deals to its rank, as positions in an order of `total` indices. The shard's own code deals them, as ranges instead of lists."""
    return iter(copied_shard(shard, _Places(total, batch_size, drop_last, shard.num_processes)))


class _Places:
    """A batch sampler of positions in an order. The batches that a shard may append to others are lists: the first one of each rank, and a short one."""

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
    """Stands for the full batch of all ranks. A slice of it, which the shard takes, is the rank's own batch, which may be short."""

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
    """The torch DataLoader itself, or the one inside accelerate's loader."""
    return vars(loader).get("base_dataloader", loader)


def has_own_state(loader: Any) -> bool:
    """Whether a loader's class has a state_dict of its own, as torchdata's StatefulDataLoader has."""
    return hasattr(type(base_loader(loader)), "state_dict")


def set_class(loader: Any, kind: type) -> None:
    """Gives a loader another class. accelerate's loaders have a property named __class__, for which plain assignment has no effect."""
    object.__dict__["__class__"].__set__(loader, kind)


def set_batch_sampler(loader: Any, batch_sampler: Any) -> None:
    """Replaces the batch sampler of a loader that was not yet iterated over. torch refuses plain assignment."""
    vars(base_loader(loader))["batch_sampler"] = batch_sampler


def sampler_in_dataset(dataset: Any) -> Any:
    """The sampler inside the dataset that Lightning's distributed sampler makes; None for any other dataset."""
    return getattr(dataset, "_sampler", None)


def wrapped_sampler(sampler: Any) -> Any:
    """The sampler that another one wraps; None: none. Lightning's wrapper has it as _sampler."""
    return next((s for s in (getattr(sampler, name, None) for name in ("batch_sampler", "sampler", "_sampler")) if s is not None), None)


def inner_sampler(sampler: Any) -> Any:
    """The sampler that another one iterates over; None: none. Lightning's wrappers hold it in a dataset."""
    inner = next((s for s in (getattr(sampler, name, None) for name in ("_batch_sampler", "batch_sampler", "sampler")) if s is not None), None)
    return sampler_in_dataset(getattr(sampler, "dataset", None)) if inner is None else inner


def holds_sampler(dataset: Any) -> bool:
    """Whether a dataset is Lightning's, which yields the indices of a sampler."""
    return any(isinstance(value, Sampler) for value in vars(dataset).values())


def lightning_callback() -> Any:
    """Lightning's Callback, of the package that the program uses."""
    names = "lightning.pytorch", "pytorch_lightning"
    used = [name for name in names if name in sys.modules] or [name for name in names if importlib.util.find_spec(name.split(".")[0])]
    return importlib.import_module((used or names)[0]).Callback


def trainer_callback() -> Any:
    """The TrainerCallback of transformers."""
    return importlib.import_module("transformers").TrainerCallback
