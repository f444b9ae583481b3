"""Hit ratios of memory policies under drawn orders, through a live server: within two points of a reference that was computed without lcache.

The losses are synthetic: exp(0.8 z) · (0.3 + 0.7 exp(−e/10)) · exp(a), where a is an AR(1) process that is much wider for a fifth of the samples.
"""

import os
import random
import sys
import types

import pytest
from realserver import ROOT, Folder, Server, needs_binary

numpy = pytest.importorskip("numpy")

SAMPLES, BYTES = 4000, 64
SEED = int(os.environ.get("LCACHE_SEED") or random.randrange(1 << 31))
IIS = {"method": "impact", "warmup": 6, "floor": 0, "s_share": 0}
PADS = {"method": "shade", "draw": "multinomial"}
REP = {**PADS, "rep": 3}
SEVERAL = [(IIS, 0.2, "paper"), (IIS, 0.2, "next-use"), (PADS, 0.2, "paper"), (PADS, 0.2, "next-use")]  # each with three seeds


@pytest.fixture(scope="module")
def server(source_dir, tmp_path_factory):
    folder = Folder(source_dir(), [BYTES] * SAMPLES)
    server = Server(folder, tmp_path_factory.mktemp("cache") / "c", epochs=0, batch_size=64)
    server.ingest()
    yield server.start()
    server.stop()


def losses(rng, epochs):
    """The losses of all samples, by epoch."""
    z, a = rng.standard_normal(SAMPLES), numpy.zeros(SAMPLES)
    wide = numpy.where(rng.permutation(SAMPLES) < SAMPLES // 5, 1.2, 0.15)
    for epoch in range(epochs):
        a = 0.3 * a + wide * rng.standard_normal(SAMPLES)
        yield (numpy.exp(0.8 * z) * (0.3 + 0.7 * numpy.exp(-epoch / 10)) * numpy.exp(a)).astype("f4")


@needs_binary
@pytest.mark.parametrize(
    "asked, epochs, first, share, policy, want",
    [
        (IIS, 24, 6, 0.2, "lru", 0.057),
        (IIS, 24, 6, 0.2, "minio", 0.202),
        (IIS, 24, 6, 0.2, "paper", 0.318),
        (IIS, 24, 6, 0.2, "next-use", 0.342),
        (IIS, 24, 6, 0.6, "next-use", 0.821),
        (PADS, 16, 2, 0.1, "paper", 0.118),
        (PADS, 16, 2, 0.2, "paper", 0.235),
        (PADS, 16, 2, 0.1, "next-use", 0.353),
        (PADS, 16, 2, 0.2, "next-use", 0.489),
        (PADS, 16, 2, 0.5, "next-use", 0.703),
        (REP, 16, 2, 0.2, "lru", 0.41),
        (REP, 16, 2, 0.2, "minio", 0.595),
        (REP, 16, 2, 0.2, "paper", 0.68),
        (REP, 16, 2, 0.2, "next-use", 0.74),
    ],
)
def test_hit_ratio(server, asked, epochs, first, share, policy, want):
    for seed in range(SEED, SEED + (3 if (asked, share, policy) in SEVERAL else 1)):
        hits, unseen = trained(server, asked, epochs, first, share, policy, seed)
        assert hits == pytest.approx(want, abs=0.02), f"LCACHE_SEED={seed}"
        if asked is REP and policy == "paper":
            assert unseen == pytest.approx(0.58, abs=0.03), f"LCACHE_SEED={seed}"  # in one epoch


def trained(server, asked, epochs, first, share, policy, seed):
    """Trains a job. Returns the share of requests that memory served, from an epoch on, and the share of samples that the last epoch left out."""
    name = f"{asked['method']}-{asked.get('rep')}-{policy}-{share}-{seed}"
    with server.connect() as plain, plain.named(name) as job:

        def counted():
            s = next(j for j in job.stats()["jobs"] if j["id"] == name)["importance"]
            assert s["requested"] == s["h_hits"] + s["l_hits"] + s["homophily_hits"] + s["substituted"] + s["log_hits"] + s["source_misses"]
            assert s["observations_dropped"] == 0 and s["h_bytes"] <= share * SAMPLES * BYTES
            return s

        job.importance(**asked, name=name, lag=0, seed=seed, policy=policy, cache=int(share * SAMPLES * BYTES))
        for epoch, loss in enumerate(losses(numpy.random.default_rng(seed), epochs)):
            if epoch == first:
                before = counted()
            for batch in job.epoch(epoch):
                job.observe(batch.indices, loss[numpy.asarray(batch.indices)])
            if asked is REP:
                job.end_epoch(accuracy=epoch / 100)  # rep would fall to 1 if the accuracy did not rise
        after = counted()
        return (after["h_hits"] - before["h_hits"]) / (after["requested"] - before["requested"]), after["unseen_share"]


def embeddings(rng, labels, epochs):
    """Embeddings of all samples, by epoch: classes of eight clusters that get narrower; a tenth of the samples lies half-way to another class."""
    labels = numpy.asarray(labels)
    centres, clusters = 3 * rng.standard_normal((10, 16)), rng.standard_normal((10, 8, 16))
    other, hard = (labels + rng.integers(1, 10, len(labels))) % 10, rng.random(len(labels)) < 0.1
    own = centres[labels] + clusters[labels, rng.integers(0, 8, len(labels))]
    own[hard] = (own[hard] + centres[other[hard]]) / 2
    for epoch in range(epochs):
        spread = 0.4 + 0.8 * numpy.exp(-epoch / 4)
        yield own + 0.35 * spread * rng.standard_normal(own.shape)


@pytest.fixture(scope="module")
def clusters(source_dir, tmp_path_factory):
    folder = Folder(source_dir(), [BYTES] * 1500, classes=10)
    server = Server(folder, tmp_path_factory.mktemp("cache") / "clusters", epochs=0, batch_size=64)
    server.ingest()
    yield server.start()
    server.stop()


@needs_binary
@pytest.mark.parametrize("policy, share, want", [("paper", 0.1, 0.45), ("paper", 0.2, 0.54), ("paper", 0.5, 0.74), ("next-use", 0.2, 0.65)])
def test_hit_ratio_by_neighbours(clusters, policy, share, want):
    """SpiderCache, without substitutes. The reference was computed for other random clusters, so only six points of agreement are possible."""
    name = f"spider-{policy}-{share}-{SEED}"
    with clusters.connect() as plain, plain.named(name) as job:

        def counted():
            s = next(j for j in job.stats()["jobs"] if j["id"] == name)["importance"]
            assert (s["substituted"], s["homophily_hits"], s["ratio"], s["observations_dropped"]) == (0, 0, 1, 0)
            return s

        radius = {"lam": 1, "alpha": numpy.exp(-2.0), "normalise": False}
        job.importance("spider", name=name, lag=0, seed=SEED, draw="multinomial", policy=policy, cache=int(share * 1500 * BYTES), **radius)
        for epoch, rows in enumerate(embeddings(numpy.random.default_rng(SEED), clusters.folder.labels, 10)):
            if epoch == 2:
                before = counted()
            for batch in job.epoch(epoch):
                job.observe(batch.indices, [0.0] * len(batch), rows[list(batch.indices)])
        after = counted()
        got = (after["h_hits"] - before["h_hits"]) / (after["requested"] - before["requested"])
        assert got == pytest.approx(want, abs=0.06), f"LCACHE_SEED={SEED}"


@needs_binary
@pytest.mark.parametrize(
    "policy, share, hits, substituted", [("paper", 0.1, 0.389, 0.064), ("paper", 0.2, 0.528, 0.076), ("paper", 0.5, 0.701, 0.046), ("next-use", 0.2, 0.618, 0.066)]
)
def test_hit_ratio_with_substitutes(clusters, policy, share, hits, substituted):
    """SpiderCache with nodes as substitutes for other samples of their class, planned between epochs. The reference is `lcache simulate --importance ar1`, with other random clusters."""
    name = f"class-{policy}-{share}-{SEED}"
    with clusters.connect() as plain, plain.named(name) as job:

        def counted():
            return next(j for j in job.stats()["jobs"] if j["id"] == name)["importance"]

        radius = {"lam": 1, "alpha": numpy.exp(-2.0), "normalise": False}
        job.importance("spider", name=name, lag=0, seed=SEED, draw="multinomial", policy=policy, cache=int(share * 1500 * BYTES), substitute="class", ratio=(0.8, 0.8), **radius)
        labels, replaced = clusters.folder.labels, 0
        for epoch, rows in enumerate(embeddings(numpy.random.default_rng(SEED), labels, 10)):
            if epoch == 2:
                before = counted()
            for batch in job.epoch(epoch):
                for asked, served in zip(batch.requested, batch.indices):
                    assert labels[asked] == labels[served]
                    replaced += asked != served
                job.observe(batch.indices, [0.0] * len(batch), rows[list(batch.indices)])
        after = counted()
        assert after["substituted"] == replaced and after["ratio"] == 0.8 and after["substituted_max"] <= 8
        n = after["requested"] - before["requested"]
        got = [(after[key] - before[key]) / n for key in ("h_hits", "homophily_hits", "substituted")]
        assert got[0] + got[1] == pytest.approx(hits, abs=0.07), (got, f"LCACHE_SEED={SEED}")
        assert got[2] == pytest.approx(substituted, abs=0.05), (got, f"LCACHE_SEED={SEED}")
        assert got[0] + got[1] + got[2] == pytest.approx(hits + substituted, abs=0.07), (got, f"LCACHE_SEED={SEED}")
        print(policy, share, [round(g, 3) for g in got])


@needs_binary
def test_accuracy_study(tmp_path, monkeypatch):
    """scripts/importance-study runs, here on clusters instead of digits. Each method learns, and has the number of steps that its epochs give."""
    rng = numpy.random.default_rng(1)
    centres, labels = rng.integers(0, 17, (10, 64)), rng.permutation(1797) % 10
    clusters = numpy.clip(centres[labels] + rng.normal(0, 3, (1797, 64)).round(), 0, 16)
    monkeypatch.setitem(sys.modules, "sklearn", types.ModuleType("sklearn"))
    monkeypatch.setitem(sys.modules, "sklearn.datasets", types.SimpleNamespace(load_digits=lambda return_X_y: (clusters, labels)))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", sys.dont_write_bytecode)
    path = os.path.join(ROOT, "scripts", "importance-study")
    script = types.ModuleType("study")
    script.__file__ = path
    monkeypatch.setitem(sys.modules, "study", script)  # its named tuples look up their module there
    with open(path) as f:
        exec(compile(f.read(), path, "exec"), script.__dict__)
    monkeypatch.setattr(script, "EPOCHS", 5)
    names = ["uniform", "random half", "impact", "impact, weights", "spider"]
    found = script.study(names, 1, 0.0, tmp_path)
    assert all(runs[0][0] > 0.9 for runs in found.values()), found
    assert [runs[0][1] for runs in found.values()] == [200, 100, 160, 160, 200]
    assert script.table(found, found).count("\n") == len(names) + 1
