"""accelerate's shards and its seedable sampler, computed as arrays: the batches, and the sampler's state and epoch, are accelerate's."""

import itertools
import time

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)
accelerate = pytest.importorskip("accelerate.data_loader", reason="accelerate is not installed")

from torch.utils import data  # noqa: E402

from lcache.torch._order.computed_orders import ComputedOrders  # noqa: E402
from lcache.torch._order.drawn_seed import DrawnSeed  # noqa: E402
from lcache.torch._order.generator_states import GeneratorStates  # noqa: E402
from lcache.torch._order.known_samplers import known_sampler  # noqa: E402
from lcache.torch._order.run_ahead import (
    LogOnce,  # noqa: E402
    RunAhead,  # noqa: E402
)


def generator():
    return torch.Generator().manual_seed(3)


def seedable(n):
    return accelerate.SeedableRandomSampler(range(n), data_seed=12)


SAMPLERS = {
    "sequential": lambda n: data.SequentialSampler(range(n)),
    "random": lambda n: data.RandomSampler(range(n), generator=generator()),
    "subset": lambda n: data.SubsetRandomSampler(range(3, 3 + 2 * n, 2), generator=generator()),
    "seedable": seedable,
    "seedable with a generator": lambda n: accelerate.SeedableRandomSampler(range(n), generator=generator(), data_seed=12),
}


def shard(sampler, size, drop_last, world, rank, split, even):
    return accelerate.BatchSamplerShard(data.BatchSampler(sampler, size, drop_last), world, rank, split, even)


def orders_of(subject):
    return ComputedOrders(GeneratorStates(lambda: subject, RunAhead(lambda: subject, LogOnce())), DrawnSeed())


def computed(subject):
    """The orders of a subject, and the epoch that begins."""
    known = known_sampler(subject)
    assert known is not None and not known.lazy
    orders = orders_of(subject)
    return orders, orders.begin(known, 0, getattr(known.sampler, "epoch", 0))


@pytest.mark.parametrize("name", SAMPLERS)
def test_batches_are_the_shards(name):
    """All ways to deal batches, including more ranks than batches, and fewer samples than one batch of all ranks."""
    for n, (world, size), split, even, drop_last in itertools.product((1, 5, 24, 49), ((2, 4), (3, 6), (5, 10)), *[(False, True)] * 3):
        for rank in {0, world // 2, world - 1}:
            theirs, mine = SAMPLERS[name](n), SAMPLERS[name](n)
            want = list(shard(theirs, size, drop_last, world, rank, split, even))
            orders, epoch = computed(shard(mine, size, drop_last, world, rank, split, even))
            assert epoch.order[:] == want
            assert list(orders.batches(0)) == want and getattr(mine, "epoch", 0) == getattr(theirs, "epoch", 0)
            if getattr(theirs, "generator", None) is not None:
                assert torch.equal(mine.generator.get_state(), theirs.generator.get_state())
            assert list(computed(shard(SAMPLERS[name](n), size, drop_last, world, rank, split, even))[0].batches(1)) == want[1:]


def test_epochs_of_the_seedable_sampler():
    theirs, mine = data.BatchSampler(seedable(50), 8, False), data.BatchSampler(seedable(50), 8, False)
    orders = orders_of(mine)
    for number in range(3):
        known = known_sampler(mine)
        assert known is not None
        orders.begin(known, number, mine.sampler.epoch)
        assert list(orders.batches(0)) == list(theirs)
        assert mine.sampler.epoch == theirs.sampler.epoch == number + 1
        assert torch.equal(mine.sampler.generator.get_state(), theirs.sampler.generator.get_state())


class Other(accelerate.BatchSamplerShard):
    pass


def test_unknown():
    inner = data.BatchSampler(data.RandomSampler(range(20), generator=generator()), 4, False)
    assert known_sampler(accelerate.BatchSamplerShard(inner, 2, 1)) is not None
    assert known_sampler(Other(inner, 2, 1)) is None
    assert known_sampler(accelerate.BatchSamplerShard(data.BatchSampler(data.DistributedSampler(range(20), 2, 1), 4, False), 2, 1)) is None
    longer = data.RandomSampler(range(20), num_samples=50, generator=generator())
    assert known_sampler(accelerate.BatchSamplerShard(data.BatchSampler(longer, 4, False), 2, 1)) is None


def test_large_shard():
    """A copy of the sampler would take seconds, and make a list of all indices."""
    subject = shard(data.RandomSampler(range(4_000_000), generator=generator()), 256, False, 8, 3, False, True)
    began = time.process_time()
    torch.randperm(4_000_000, generator=generator()).tolist()
    torchs = time.process_time() - began
    began = time.process_time()
    orders, epoch = computed(subject)
    assert next(orders.batches(0)) == epoch.order[0]
    assert time.process_time() - began < 2 * torchs + 0.5
    assert len(epoch.order.flat) == 500_224
