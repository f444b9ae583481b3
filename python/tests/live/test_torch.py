"""torch's generator and samplers."""

import array

import pytest

from harness import SEEDS, SIZES, Check

torch = pytest.importorskip("torch")
data = torch.utils.data


def generator(seed):
    g = torch.Generator()
    g.manual_seed(seed)
    return g


def test_randperm():
    with Check("torch.randperm") as check:
        cases = [(n, 42) for n in [0, *SIZES]] + [(10, s) for s in [*SEEDS, 2**64, -(2**63) - 1]]
        cases += [(check.size(100_000), check.seed()) for _ in range(30)]
        for n, seed in cases:
            try:
                g = generator(seed)
            except (RuntimeError, OverflowError, ValueError) as e:
                check.refused(e, "torch.randperm", n=n, seed=seed)
                continue
            for epoch in range(2):
                check.same(torch.randperm(n, generator=g), "torch.randperm", n=n, seed=seed, epoch=epoch)


def test_saved_state():
    with Check("torch.Generator.get_state") as check:
        for draws in [0, 1, 5, 623, 624, 625, 1300, check.rng.randrange(5000)]:
            g = generator(check.seed())
            torch.empty(draws, dtype=torch.int32).random_(generator=g)
            if draws % 2:
                torch.randn(3, generator=g)
            state = check.file(bytes(g.get_state().tolist()))
            sampler = data.RandomSampler(range(100), generator=g)
            for epoch in range(3):
                check.same(sampler, "torch.random_sampler", n=100, epoch=epoch, state=state, generator="explicit")


def random_sampler(check, n, seed, own, replacement, count):
    what = dict(n=n, seed=seed, generator="explicit" if own else "default", replacement=replacement, num_samples=count)
    torch.manual_seed(seed)
    try:
        sampler = data.RandomSampler(range(n), replacement, count, generator(seed) if own else None)
    except ValueError as e:
        check.refused(e, "torch.random_sampler", **what)
        return
    for epoch in range(3):
        check.same(sampler, "torch.random_sampler", epoch=epoch, **what)


def test_random_sampler():
    with Check("torch.random_sampler", share=2) as check:
        for own in (False, True):
            for n, replacement, count in [(0, False, None), (1, False, None), (2, True, None), (10, False, 25), (10, False, 3), (10, False, 20), (50, True, 64), (7, True, 31), (7, False, 0)]:
                random_sampler(check, n, 5, own, replacement, count)
        for _ in check.random_cases():
            n = check.size()
            count = check.rng.choice([None, check.rng.randrange(1, 3 * n + 1)])
            random_sampler(check, n, check.seed(), check.rng.random() < 0.5, check.rng.random() < 0.4, count)


def test_wide_randint():
    with Check("torch.randint above 2**28", share=0) as check:
        for n in (2**28 - 1, 2**28, 2**31, 2**32 - 1):
            sampler = data.RandomSampler(range(n), True, 40, generator(7))
            for epoch in range(2):
                check.same(sampler, "torch.random_sampler", n=n, seed=7, generator="explicit", replacement=True, num_samples=40, epoch=epoch)


def test_subset_random_sampler():
    with Check("torch.subset_random_sampler") as check:
        for _ in range(25):
            seed = check.seed()
            start, step = check.rng.randrange(1000), check.rng.choice([1, 2, 7, -1, -3])
            stop = max(start + step * check.rng.randrange(0, 300), -1)
            sampler = data.SubsetRandomSampler(list(range(start, stop, step)), generator(seed))
            for epoch in range(2):
                check.same(sampler, "torch.subset_random_sampler", seed=seed, indices_range=[start, stop, step], epoch=epoch)
        indices = [check.rng.randrange(2**32) for _ in range(500)]
        sampler = data.SubsetRandomSampler(indices, generator(1))
        check.same(sampler, "torch.subset_random_sampler", seed=1, indices=check.file(array.array("I", indices).tobytes()))


def test_weighted_random_sampler():
    with Check("torch.weighted_random_sampler") as check:
        for i in range(25):
            n, count, seed = check.rng.randrange(1, 3000), check.rng.randrange(2, 500), check.seed()
            weights = [check.rng.choice([0.0, 1.0, check.rng.random(), check.rng.expovariate(0.01)]) for _ in range(n)]
            weights[check.rng.randrange(n)] = 1.0
            sampler = data.WeightedRandomSampler(weights, count, True, generator(seed))
            path = check.file(array.array("d", weights).tobytes())
            for epoch in range(2):
                check.same(sampler, "torch.weighted_random_sampler", n=n, seed=seed, num_samples=count, weights=path, epoch=epoch)
        for replacement, count in ((False, 2), (True, 1)):
            check.refused("it can't be replayed", "torch.weighted_random_sampler", n=3, seed=1, weights="[1,2,3]", num_samples=count, replacement=replacement)


def test_random_split():
    with Check("torch.random_split") as check:
        cases = [(10, [3, 7]), (10, [1]), (1, [1]), (0, [0.5, 0.5]), (10, [0, 10]), (11, [0.3, 0.3, 0.4]), (10, [3, 3]), (7, [0.1] * 10)]
        for _ in range(15):
            n = check.size()
            a = check.rng.randrange(n + 1)
            x = check.rng.random()
            cases += [(n, [a, n - a]), (n, [x, 1 - x])]
        for n, lengths in cases:
            seed = check.seed()
            try:
                splits = data.random_split(range(n), lengths, generator(seed))
            except ValueError as e:
                check.refused(e, "torch.random_split", n=n, seed=seed, lengths=lengths)
                continue
            for i, split in enumerate(splits):
                check.same(split.indices, "torch.random_split", n=n, seed=seed, lengths=lengths, epoch=i)


def test_distributed_sampler():
    with Check("torch.distributed_sampler", share=4) as check:
        def one(n, seed, world, rank, shuffle, drop_last, epoch):
            sampler = data.DistributedSampler(range(n), world, rank, shuffle, seed, drop_last)
            sampler.set_epoch(epoch)
            check.both(lambda: sampler, "torch.distributed_sampler", n=n, seed=seed, world=world, rank=rank, shuffle=shuffle, drop_last=drop_last, epoch=epoch)

        for n in (0, 1, 2, 7, 8, 9, 1009):
            for world in (1, 2, 8, 13):
                for drop_last in (False, True):
                    for rank in {0, world - 1}:
                        one(n, 42, world, rank, True, drop_last, 1)
        for seed in [*SEEDS, 2**64, -(2**63) - 1]:
            one(10, seed, 3, 1, True, False, 0)
            one(10, seed, 3, 1, True, False, 3)
        for _ in check.random_cases():
            world = check.rng.choice([1, 2, 3, 8, 64, check.rng.randrange(1, 6000)])
            one(check.size(), check.seed(), world, check.rng.randrange(world), check.rng.random() < 0.9, check.rng.random() < 0.5, check.rng.randrange(100))
