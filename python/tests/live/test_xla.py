"""JAX's permutation and grain's index shuffle. The name of this file makes it run last, because JAX starts threads and other tests fork loaders."""

import pytest

from harness import Check


def test_jax():
    jax = pytest.importorskip("jax")
    # JAX compiles a permutation for each size, which takes most of the time.
    with Check("jax.permutation", share=1) as check:
        for partitionable in (True, False):
            jax.config.update("jax_threefry_partitionable", partitionable)
            for n in (0, 1, 2, 7, 1626):
                for seed in (0, 42, 2**32 - 1, 2**32, -1):
                    key = jax.random.key(seed)
                    for epoch, fold in ((0, True), (3, True), (1, False)):
                        want = jax.random.permutation(jax.random.fold_in(key, epoch) if fold else key, n).tolist()
                        check.same(want, "jax.permutation", n=n, seed=seed, epoch=epoch, fold_in=fold, partitionable=partitionable)
                    if n < 7 and seed == 42:
                        break
            for _ in check.random_cases(2):
                n, seed, epoch = check.size(50_000), check.rng.getrandbits(32), check.rng.getrandbits(32)
                want = jax.random.permutation(jax.random.fold_in(jax.random.key(seed), epoch), n).tolist()
                check.same(want, "jax.permutation", n=n, seed=seed, epoch=epoch, partitionable=partitionable)
        jax.config.update("jax_threefry_partitionable", True)


def test_grain():
    grain = pytest.importorskip("grain")
    with Check("grain.index_shuffle", share=1) as check:
        def one(n, seed, epochs):
            ds = grain.MapDataset.range(n).shuffle(seed=seed).repeat(epochs)
            for epoch in range(epochs):
                check.same([ds[epoch * n + i] for i in range(n)], "grain.index_shuffle", n=n, seed=seed, epoch=epoch)

        for n in (1, 2, 3, 255, 256, 257, 1009):
            one(n, 42, 2)
        one(65537, 42, 1)
        for seed in (0, 2**31, 2**32 - 1):
            one(10, seed, 3)
        for _ in check.random_cases():
            one(check.size(), check.rng.getrandbits(32), 2)
