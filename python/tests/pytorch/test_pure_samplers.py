"""Samplers of other packages whose copies run in this process are pure in the installed releases. All others run in a child."""

import copy
import importlib
import random

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)

from torch.utils import data  # noqa: E402

import lcache.torch as lt  # noqa: E402
from lcache.torch._order.pure_samplers import PURE, impure_part  # noqa: E402
from lcache.torch._order.sampler_copy import Generators, copy_sampler, preserved_random_states  # noqa: E402

N = 60


def generator():
    return torch.Generator().manual_seed(4)


def batches():
    return data.BatchSampler(data.RandomSampler(range(N), generator=generator()), 4, False)


LENGTHS = [1 + i * 7 % 31 for i in range(N)]
MAKE = {
    "BatchSamplerShard": lambda kind: kind(batches(), 2, 1),
    "SeedableRandomSampler": lambda kind: kind(range(N), data_seed=3),
    "SkipBatchSampler": lambda kind: kind(batches(), 2),
    "DistributedSamplerWrapper": lambda kind: kind(data.RandomSampler(range(N), generator=generator()), 2, 1),
    "UnrepeatedDistributedSampler": lambda kind: kind(range(N), 3, 1, seed=2),
    "UnrepeatedDistributedSamplerWrapper": lambda kind: kind(data.RandomSampler(range(N), generator=generator()), num_replicas=2, rank=1, shuffle=False),
    "_IndexBatchSamplerWrapper": lambda kind: kind(batches()),
    "OrderedDistributedSampler": lambda kind: kind(range(N), 2, 1),
    "RepeatAugSampler": lambda kind: kind(range(N), 2, 1, selected_round=0),
    "BatchSampler": lambda kind: kind(data.RandomSampler(range(N), generator=generator()), 4, False),
    "RandomSampler": lambda kind: kind(range(N), generator=generator()),
    "StatefulDistributedSampler": lambda kind: kind(range(N), 2, 1),
    "BatchRebalanceSampler": lambda kind: kind(LENGTHS, effective_batch_size=12, dp_size=2, grad_accum=1),
    "DistributedLengthGroupedSampler": lambda kind: kind(4, num_replicas=2, rank=1, lengths=LENGTHS),
    "DistributedSamplerWithLoop": lambda kind: kind(range(N), batch_size=4, num_replicas=2, rank=1),
    "LengthGroupedSampler": lambda kind: kind(4, lengths=LENGTHS, generator=generator()),
    "ShardSampler": lambda kind: kind(range(N), 4, num_processes=2, process_index=1),
}


@pytest.mark.parametrize("module, name", [(module, name) for module, names in PURE.items() for name in names])
def test_is_pure_as_installed(module, name):
    """A copy yields the same as the sampler, for two epochs, and changes neither the sampler nor a global random state."""
    kind = getattr(pytest.importorskip(module), name)
    sampler, reference = MAKE[name](kind), MAKE[name](kind)
    assert impure_part(sampler) is None and type(sampler) is kind and kind.__module__ == module
    random.seed(2), torch.manual_seed(2)
    want = [list(reference), list(reference)]
    random.seed(2), torch.manual_seed(2)
    kept = repr(sorted(vars(copy.copy(sampler)).items()))
    states = Generators(sampler).states()
    with preserved_random_states():
        twin = copy_sampler(sampler)
        assert [list(twin), list(twin)] == want
    assert repr(sorted(vars(copy.copy(sampler)).items())) == kept
    assert all(torch.equal(a, b) for a, b in zip(Generators(sampler).states(), states))
    assert [list(sampler), list(sampler)] == want


def test_lightnings_other_names():
    for usual, other in (("lightning.fabric.utilities.distributed", "lightning_fabric.utilities.distributed"),):
        pytest.importorskip(usual)
        try:
            kind = importlib.import_module(other).DistributedSamplerWrapper
        except ImportError:
            pytest.skip(f"{other} is not installed")
        assert impure_part(kind(data.SequentialSampler(range(N)), 1, 0)) is None


class Mine(data.RandomSampler):
    pass


class Declared(data.Sampler):
    """lcache_pure of a sampler also covers the samplers that it iterates over."""

    lcache_pure = True

    def __init__(self):
        self.sampler = Mine(range(N))

    def __iter__(self):
        return iter(self.sampler)


class DeclaredNot(Declared):
    lcache_pure = False


class Own(lt.BatchSampler):
    def batches(self):
        yield [1]


@pytest.mark.parametrize(
    "sampler, kind",
    [
        (batches(), None),
        (lt.BatchSampler(data.SequentialSampler(range(N)), 4, False), None),
        (data.BatchSampler(range(N), 4, False), None),
        ([[1, 2], [3]], None),
        (Declared(), None),
        (data.BatchSampler(Declared(), 4, False), None),
        (DeclaredNot(), DeclaredNot),
        (data.BatchSampler(Mine(range(N)), 4, False), Mine),
        (Own(data.SequentialSampler(range(N)), 4, False), Own),
        (data.DistributedSampler(range(N), 1, 0), None),
    ],
)
def test_pure_samplers(sampler, kind):
    part = impure_part(sampler)
    assert part is None if kind is None else type(part) is kind
