"""Computes the orders of torch's own samplers: an epoch as one array, drawn from a given generator.

A sampler's __iter__ makes a list of Python integers. For 14 million samples this takes a second and 600 MB. Here an epoch consists of steps. Each step is one
call of torch.randperm or a similar function, with the arguments that the sampler gives, at the moment when the sampler calls it. So its numbers and the
final state of the generator are torch's. Only samplers of exactly torch's classes are known, and accelerate's seedable one. For each class, a small epoch of
the installed release is compared once. If accelerate's shard deals batches to ranks, the shard's own code deals positions in the array.
"""

from __future__ import annotations

import functools
import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.utils.data
from torch.utils.data import DistributedSampler, RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler

from ..._client.orders import Order
from . import frameworks
from .sampler_copy import Generators

_MOST = 1 << 31  # indices that fit an int32


class Step(NamedTuple):
    """One draw: its number of indices, and the function that draws them. A function that draws no random numbers takes None as the generator."""

    length: int
    draw: Callable[[Any], array[int]]


class KnownSampler(NamedTuple):
    """A batch sampler over a known sampler."""

    sampler: Any
    batch_size: int
    drop_last: bool
    shard: Any = None  # accelerate's shard, which deals the batches to ranks; None: all batches are this rank's

    @property
    def lazy(self) -> bool:
        """Whether the sampler draws while it is read. Then the sampler itself must yield the batches."""
        return isinstance(self.sampler, RandomSampler) and bool(self.sampler.replacement)

    @property
    def generator(self) -> torch.Generator | None:
        """The generator that the sampler draws from when it is read. None if it draws nothing, or makes a generator in each epoch."""
        if isinstance(self.sampler, (SequentialSampler, DistributedSampler)):
            return None
        if isinstance(self.sampler, RandomSampler) or self.sampler.generator is not None:
            own: torch.Generator | None = self.sampler.generator
            return own
        return torch.default_generator

    @property
    def is_global(self) -> bool:
        """Whether the sampler draws its order from torch's default generator."""
        return self.generator is torch.default_generator

    @property
    def draws_seed(self) -> bool:
        """Whether the sampler draws a seed from torch's default generator, and the order from a generator with that seed."""
        return isinstance(self.sampler, RandomSampler) and self.sampler.generator is None and not self.reseeds

    @property
    def reseeds(self) -> bool:
        """Whether the sampler seeds its generator before each epoch."""
        return frameworks.is_reseeded(self.sampler)

    def reseeded(self, epoch: int, generator: torch.Generator | None = None) -> torch.Generator:
        """A generator, by default a new one, seeded as the sampler does for an epoch."""
        return (torch.Generator() if generator is None else generator).manual_seed(self.sampler.initial_seed + epoch)

    def signature(self, epoch: int) -> tuple[Any, ...]:
        """The inputs of an epoch's order, in addition to the generator's state. The program can change a sampler's attributes at any time."""
        s, own = self.sampler, (id(self.sampler), self.batch_size, self.drop_last, None if self.shard is None else frameworks.shard_signature(self.shard))
        if isinstance(s, SequentialSampler):
            return *own, len(s.data_source)
        if isinstance(s, RandomSampler):
            return *own, len(s.data_source), s.num_samples, s.replacement
        if isinstance(s, SubsetRandomSampler):
            return *own, id(s.indices), len(s.indices)
        if isinstance(s, WeightedRandomSampler):
            return *own, id(s.weights), s.weights._version, s.num_samples, s.replacement
        return *own, len(s.dataset), s.total_size, s.num_samples, s.num_replicas, s.rank, s.drop_last, s.shuffle, s.seed, epoch if s.shuffle else 0

    def steps(self, epoch: int) -> list[Step]:
        """The steps of an epoch, which may run in any thread. Only a DistributedSampler's steps depend on the epoch's number."""
        steps = _STEPS[type(self.sampler)](self.sampler, epoch)
        return [step for step in steps if step.length] if self.draws_seed else steps  # the final state of a generator that was made from a seed is never used

    def global_steps(self, epoch: int) -> list[Step]:
        """The steps of an epoch of all ranks together, without padding."""
        return _all_ranks(self.sampler, epoch) if isinstance(self.sampler, DistributedSampler) else self.steps(epoch)

    def indices(self, drawn: array[int]) -> array[int]:
        """The dataset indices that the sampler yields for drawn numbers. Raises an error if they are not u32."""
        if not isinstance(self.sampler, SubsetRandomSampler):
            return drawn
        if not len(drawn):
            return drawn
        table = _tensor(_u32(self.sampler.indices))
        return _array(table.index_select(0, _tensor(drawn)))

    def order(self, indices: array[int]) -> Order:
        """The batches of an epoch's indices."""
        if self.shard is None:
            return Order.cut(indices, self.batch_size, self.drop_last)
        batches = list(frameworks.dealt(self.shard, len(indices), self.batch_size, self.drop_last))
        flat = array("I")
        for places in batches:
            flat += _at(indices, places)
        return Order(array("I", map(len, batches)), flat)

    def batches(self, blocks: Iterator[array[int]], skip: int) -> Iterator[list[Any]]:
        """The batches of an epoch's drawn numbers from number `skip` on. A block is requested when the sampler would draw it."""
        if self.shard is None:
            for batch in cut(blocks, self.batch_size, self.drop_last, skip):
                yield self.values(batch)
            return
        drawn = next(blocks, array("I"))
        for number, places in enumerate(frameworks.dealt(self.shard, len(drawn), self.batch_size, self.drop_last)):
            if number >= skip:
                yield self.values(_at(drawn, places).tolist())
        for _ in blocks:
            pass  # the numbers that torch draws after the end

    def values(self, drawn: list[int]) -> list[Any]:
        """The values that the sampler itself yields for drawn numbers."""
        if not isinstance(self.sampler, SubsetRandomSampler):
            return drawn
        chosen = self.sampler.indices
        return [chosen[i] for i in drawn]


def known_sampler(batches: Any) -> KnownSampler | None:
    """The parts of a batch sampler whose orders can be computed; None for any other."""
    shard = batches if frameworks.is_shard(batches) else None
    if shard is not None:
        batches = shard.batch_sampler
    if type(batches) is not torch.utils.data.BatchSampler and not getattr(batches, "cuts_as_torch", False):
        return None
    sampler = batches.sampler
    kind: Any = type(sampler)
    if frameworks.is_reseeded(sampler):
        _STEPS.setdefault(kind, _random)
        _EXAMPLES.setdefault(kind, lambda: [kind(range(37), num_samples=total, data_seed=5) for total in (None, 20)])
    if kind not in _STEPS or "__iter__" in vars(sampler) or not _is_as_computed(kind):
        return None
    generator = getattr(sampler, "generator", None)
    if generator is not None and not (isinstance(generator, torch.Generator) and generator.device.type == "cpu"):
        return None
    if [id(g) for g in Generators(batches)] != ([] if generator is None else [id(generator)]):
        return None  # its dataset may draw, too
    found = KnownSampler(sampler, batches.batch_size, batches.drop_last, shard)
    if found.reseeds and (found.is_global or (generator is None and torch.get_default_device().type != "cpu")):
        return None
    try:
        steps = found.steps(int(getattr(sampler, "epoch", 0)))
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return None  # the sampler itself raises the error
    if shard is not None and (isinstance(sampler, DistributedSampler) or any(step.length for step in steps[1:])):
        return None
    return found if sum(step.length for step in steps[:64]) < _MOST else None


def cut(blocks: Iterator[array[int]], batch_size: int, drop_last: bool, skip: int = 0) -> Iterator[list[int]]:
    """Batches of consecutive numbers, as torch's BatchSampler cuts them, without the first `skip`. A block is requested when its first number is needed."""
    block, at = array("I"), 0
    for number in itertools.count():
        batch: list[int] = []
        size = 0
        while size < batch_size:
            if at == len(block):
                following = next(blocks, None)
                if following is None:
                    break
                block, at = following, 0
                continue
            taken = min(batch_size - size, len(block) - at)
            if number >= skip:
                batch += block[at : at + taken].tolist()
            size, at = size + taken, at + taken
        if size < batch_size and (drop_last or not size):
            return
        if number >= skip:
            yield batch
        if size < batch_size:
            return


def _at(numbers: array[int], places: Sequence[int]) -> array[int]:
    """The numbers at positions, which are a range or a list."""
    return numbers[places.start : places.stop] if isinstance(places, range) else array("I", [numbers[i] for i in places])


def concatenated(blocks: Iterable[array[int]]) -> array[int]:
    """All blocks in one array. A single block is not copied."""
    kept = [block for block in blocks if len(block)]
    return kept[0] if len(kept) == 1 else sum(kept, array("I"))


# Steps, by sampler. A step keeps the data that it needs and not the sampler, because the program may drop the sampler.


def _sequential(sampler: Any, _: int) -> list[Step]:
    n = len(sampler.data_source)
    return [Step(n, lambda _: _counted(n))]


def _random(sampler: Any, _: int) -> list[Step]:
    n, total = len(sampler.data_source), sampler.num_samples
    if sampler.replacement:
        return [Step(total, lambda g: _array(torch.randint(high=n, size=(total,), dtype=torch.int64, generator=g)))]
    rest = total % n
    whole = Step(n, lambda g: _permutation(n, g))
    return [whole] * (total // n) + [Step(rest, lambda g: _permutation(n, g)[:rest])]


def _subset(sampler: Any, _: int) -> list[Step]:
    n = len(sampler.indices)
    return [Step(n, lambda g: _permutation(n, g))]


def _weighted(sampler: Any, _: int) -> list[Step]:
    weights, total, replacement = sampler.weights, sampler.num_samples, sampler.replacement
    return [Step(total, lambda g: _array(torch.multinomial(weights, total, replacement, generator=g)))]


def _distributed(sampler: Any, epoch: int) -> list[Step]:
    n, total, world, rank = len(sampler.dataset), sampler.total_size, sampler.num_replicas, sampler.rank
    drop_last, count = sampler.drop_last, sampler.num_samples
    if n == 0 or (total > n if drop_last else total < n) or len(range(rank, total, world)) != count:
        raise ValueError  # torch's sampler raises its own errors for these
    order = _all_ranks(sampler, epoch)[0].draw

    def draw(_: Any) -> array[int]:
        whole = order(None)
        if total > n:
            whole = (whole * -(-total // n))[:total] if total > 2 * n else whole + whole[: total - n]
        return whole[rank:total:world] if world > 1 else whole[:total] if total < n else whole

    return [Step(count, draw)]


def _all_ranks(sampler: Any, epoch: int) -> list[Step]:
    n, shuffle, seed = len(sampler.dataset), sampler.shuffle, sampler.seed
    if shuffle:
        return [Step(n, lambda _: _permutation(n, torch.Generator().manual_seed(seed + epoch)))]
    return [Step(n, lambda _: _counted(n))]


_STEPS: dict[type, Callable[[Any, int], list[Step]]] = {
    SequentialSampler: _sequential,
    RandomSampler: _random,
    SubsetRandomSampler: _subset,
    WeightedRandomSampler: _weighted,
    DistributedSampler: _distributed,
}


# Arrays. A tensor uses the memory of an array, so neither numpy nor a copy is needed.


def _tensor(column: array[int]) -> torch.Tensor:
    return torch.frombuffer(column, dtype=torch.int32)


def _empty(n: int) -> array[int]:
    return array("I", bytes(4)) * n


def _permutation(n: int, generator: torch.Generator | None) -> array[int]:
    column = _empty(n)
    if n == 0:
        torch.randperm(0, generator=generator)
    else:
        torch.randperm(n, generator=generator, out=_tensor(column))
    return column


def _counted(n: int) -> array[int]:
    column = _empty(n)
    if n:
        torch.arange(n, out=_tensor(column))
    return column


def _array(numbers: torch.Tensor) -> array[int]:
    column = _empty(len(numbers))
    if len(numbers):
        _tensor(column).copy_(numbers)
    return column


def _u32(values: Any) -> array[int]:
    if isinstance(values, range):
        if min(values[0], values[-1]) < 0 or max(values[0], values[-1]) >= _MOST:
            raise OverflowError(f"{values} has indices that are not u32")
        return _array(torch.arange(values.start, values.stop, values.step, dtype=torch.int64))
    return array("I", values.tolist() if hasattr(values, "tolist") else values)


@functools.cache
def _is_as_computed(kind: Any) -> bool:
    """Whether the installed release of torch yields the epochs that are computed here, with the same final state of its generator."""
    try:
        return all(_same_epoch(sampler) for sampler in _EXAMPLES[kind]())
    except Exception:  # noqa: BLE001  another release may differ in any way
        return False


def _same_epoch(sampler: Any) -> bool:
    generator = torch.Generator().manual_seed(7)
    if hasattr(sampler, "generator"):
        sampler.generator = torch.Generator().manual_seed(7)
    known = KnownSampler(sampler, 1, False)
    if known.reseeds:
        generator = known.reseeded(sampler.epoch)
    drawn = concatenated([step.draw(generator) for step in known.steps(getattr(sampler, "epoch", 0))])
    if known.indices(drawn).tolist() != list(sampler):
        return False
    return not hasattr(sampler, "generator") or torch.equal(generator.get_state(), sampler.generator.get_state())


def _distributed_examples() -> Iterator[Any]:
    for world, rank, shuffle, drop_last in ((1, 0, True, False), (3, 1, True, False), (3, 2, True, True), (4, 3, False, False), (90, 80, True, False)):
        sampler: Any = DistributedSampler(range(37), world, rank, shuffle, 5, drop_last)
        sampler.set_epoch(2)
        yield sampler


_EXAMPLES: dict[type, Callable[[], Iterable[Any]]] = {
    SequentialSampler: lambda: [SequentialSampler(range(5))],
    RandomSampler: lambda: [RandomSampler(range(37), replacement, total) for replacement in (False, True) for total in (None, 20, 37, 100)],
    SubsetRandomSampler: lambda: [SubsetRandomSampler(range(90, 9, -3)), SubsetRandomSampler([5, 1, 5])],
    WeightedRandomSampler: lambda: [WeightedRandomSampler([1.0, 3.0, 2.0, 0.5] * 8, 20, replacement) for replacement in (False, True)],
    DistributedSampler: _distributed_examples,
}
