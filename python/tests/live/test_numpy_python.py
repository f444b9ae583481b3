"""NumPy's generators and Python's own."""

import random

import pytest

from harness import Check

OPS = ["permutation", "shuffle", "shuffle_list", "permuted", "shuffle_cumulative"]


def epochs(g, n, op, count):
    """The first epochs of a live generator."""
    np = pytest.importorskip("numpy")
    kept = np.arange(n)
    for _ in range(count):
        if op == "permutation":
            yield g.permutation(n)
        elif op == "permuted":
            yield g.permuted(np.arange(n))
        else:
            x = kept if op == "shuffle_cumulative" else list(range(n)) if op == "shuffle_list" else np.arange(n)
            g.shuffle(x)
            yield list(x)


def numpy_case(check, recipe, make, n, seed, op):
    try:
        g = make(seed)
    except ValueError as e:
        check.refused(e, recipe, n=n, seed=seed, op=op)
        return
    if op == "permuted" and not hasattr(g, "permuted"):
        op = "permutation"
    for epoch, want in enumerate(epochs(g, n, op, 3)):
        check.same(want, recipe, n=n, seed=seed, op=op, epoch=epoch)


def test_default_rng():
    np = pytest.importorskip("numpy")
    with Check("numpy.default_rng", share=1) as check:
        for n in (0, 1, 2, 3, 64, 65, 4096, 4097):
            numpy_case(check, "numpy.default_rng", np.random.default_rng, n, 42, "permutation")
        for seed in (0, 2**32 - 1, 2**32, 2**64, 2**127 + 12345, 2**128, 2**200 + 7, 3**1000, -1):
            numpy_case(check, "numpy.default_rng", np.random.default_rng, 11, seed, "permutation")
        for op in OPS:
            numpy_case(check, "numpy.default_rng", np.random.default_rng, 101, 5, op)
        for _ in check.random_cases():
            numpy_case(check, "numpy.default_rng", np.random.default_rng, check.size(), check.rng.getrandbits(check.rng.randrange(1, 300)), check.rng.choice(OPS))


def test_random_state():
    np = pytest.importorskip("numpy")
    with Check("numpy.random_state", share=1) as check:
        for n in (0, 1, 2, 3, 625, 4096, 4097):
            numpy_case(check, "numpy.random_state", np.random.RandomState, n, 42, "permutation")
        for seed in (0, 2**32 - 1, 2**32, -1):
            numpy_case(check, "numpy.random_state", np.random.RandomState, 11, seed, "shuffle_list")
        for _ in check.random_cases():
            numpy_case(check, "numpy.random_state", np.random.RandomState, check.size(), check.rng.getrandbits(32), check.rng.choice(OPS))


def test_hf_datasets():
    datasets = pytest.importorskip("datasets")
    with Check("HF datasets shuffle(seed)", share=0) as check:
        for n in (1, 2, 1009):
            for seed in (0, 42, 2**32 + 1):
                shuffled = datasets.Dataset.from_dict({"i": range(n)}).shuffle(seed=seed)
                check.same(shuffled["i"][:], "numpy.default_rng", n=n, seed=seed, op="permutation")


def test_python_shuffle():
    with Check("python.shuffle", share=1) as check:
        cases = [(n, 42) for n in (0, 1, 2, 3, 4, 255, 256, 257)] + [(10, s) for s in (0, -42, 2**32, 2**64, 2**31 - 1, 7**3000)]
        cases += [(check.size(), check.rng.getrandbits(check.rng.randrange(1, 200)) * check.rng.choice([1, -1])) for _ in range(60)]
        for n, seed in cases:
            g = random.Random(seed)
            for epoch in range(2):
                x = list(range(n))
                g.shuffle(x)
                check.same(x, "python.shuffle", n=n, seed=seed, epoch=epoch)


def test_python_sample():
    with Check("python.sample", share=1) as check:
        cases = [(0, 0), (1, 1), (21, 5), (22, 5), (85, 6), (86, 6), (100, 21), (1000, 10), (10, 11)]
        cases += [(check.size(), None) for _ in range(60)]
        for n, k in cases:
            k = check.rng.randrange(n + 1) if k is None else k
            seed = check.rng.getrandbits(64)
            g = random.Random(seed)
            for epoch in range(2):
                check.both(lambda: g.sample(range(n), k), "python.sample", n=n, seed=seed, k=k, epoch=epoch)
