"""Neighbours in embedding space: the counts equal the counts of a plain loop over all pairs, with numpy and with torch. Also the method that observes them."""

import json
import logging
import math
import os
import sys

import pytest
from realserver import ROOT, Folder, Server, needs_binary

import lcache
from lcache import importance
from lcache._client import protocol
from lcache.neighbours import Bank, Options

numpy = pytest.importorskip("numpy", reason="numpy is not installed")


def of_torch():
    pytest.importorskip("torch", reason="torch is not installed")
    from lcache.torch import Neighbours

    return Neighbours()


MAKERS = {"numpy": lambda: Bank, "torch": of_torch}


@pytest.fixture(params=sorted(MAKERS))
def make(request):
    return MAKERS[request.param]()


class Reference:
    """The same result by a loop over all pairs, in double precision, with unscaled embeddings."""

    def __init__(self, labels, radius, k):
        self.labels, self.radius, self.k, self.rows = labels, radius, k, {}

    def near(self, i):
        found = [(math.dist(self.rows[i], row), j) for j, row in self.rows.items() if j != i]
        return [j for d, j in sorted(found) if d < self.radius][: self.k]

    def observe(self, indices, embeddings):
        self.rows.update(zip(indices, embeddings))
        every = [self.near(i) for i in dict.fromkeys(indices)]
        own = [[j for j in near if self.labels[j] == self.labels[i]] for i, near in zip(dict.fromkeys(indices), every)]
        same = [len(near) for near in own]
        best = same.index(max(same))
        node = list(dict.fromkeys(indices))[best] if same[best] else None
        return list(dict.fromkeys(indices)), same, [len(n) - s for n, s in zip(every, same)], node, own[best] if node is not None else []


def shown(counted):
    return list(counted.indices), list(counted.same), list(counted.other), counted.node, list(counted.near)


@pytest.mark.parametrize("seed", range(4))
def test_as_a_plain_loop(make, seed):
    rng = numpy.random.default_rng(seed)
    labels = rng.integers(0, 3, 80).tolist()
    bank, want = make(labels, Options(k=7, lam=0.5, alpha=math.exp(-0.5 * 1.1), normalise=False)), Reference(labels, 1.1, 7)
    for epoch in range(3):
        order = rng.permutation(80).tolist()
        for at in range(0, 80, 16):
            batch = order[at : at + 16] + order[at : at + 1]  # one sample is in it twice
            rows = rng.normal(size=(17, 3)).astype("f4")
            rows[0] = rows[-1]
            assert shown(bank.observe(batch, rows, epoch)) == want.observe(batch, rows.tolist())


def test_golden_cases(make):
    """The counts in the golden cases of the scorer."""
    with open(os.environ.get("IMPORTANCE_CASES") or os.path.join(ROOT, "internal", "importance", "testdata", "cases.json")) as f:
        cases = [case for case in json.load(f)["cases"] if case["kind"] == "graph_scorer" and set(case["in"]) == {"n", "labels", "lambda", "alpha", "k", "batches"}]
    assert cases
    for case in cases:
        given, want = case["in"], case["want"]
        bank = make(given["labels"], Options(given["k"], given["lambda"], given["alpha"], normalise=False))
        values, best = [None] * given["n"], []
        for indices, rows in given["batches"]:
            found = bank.observe(indices, rows, 0)
            for i, same, other in zip(found.indices, found.same, found.other):
                values[i] = math.log(1 + 1 / (1 + same) + other / given["k"])
            best.append([found.node, list(found.near)])
        assert best == want["best"]
        for got, value in zip(values, want["values"]):
            assert got is value is None or got == pytest.approx(value, rel=1e-12)


def test_radius_follows(make):
    """A quarter of the pairs within a class are neighbours. The scale of embeddings has no effect. Each epoch the radius is estimated again."""
    rng = numpy.random.default_rng(1)
    labels = [i % 2 for i in range(60)]
    rows = rng.normal(size=(60, 8)) + 2 * rng.normal(size=(2, 8))[labels]
    bank = make(labels, Options())
    whole = bank.observe(range(60), rows, 0)
    assert 0.2 <= sum(whole.same) / (2 * 30 * 29) <= 0.3
    again = make(labels, Options()).observe(range(60), 1000 * rows, 0)
    assert sum(map(abs, numpy.subtract(whole.same, again.same))) <= 4  # rounding
    before = bank.radius
    bank.observe(range(60), rng.normal(size=(60, 8)), 0)
    assert bank.radius == before
    bank.observe(range(60), rng.normal(size=(60, 8)), 1)
    assert bank.radius > before, "the radius of the next epoch, whose classes do not form clusters"


def test_invalid_embeddings(make):
    labels = [0] * 6
    bank = make(labels, Options(lam=1, alpha=0.5))
    nan, inf = float("nan"), float("inf")
    found = bank.observe([0, 1, 2, 9], [[1.0, 0.0], [nan, 0.0], [0.0, -inf], [1.0, 0.0]], 0)
    assert (list(found.indices), list(found.same), found.node, bank.refused) == ([0, 9], [0, 0], None, 2)
    assert list(bank.observe([3, 4], [[0.0, 0.0], [1.0, 0.0]], 0).same) == [0, 1], "a zero vector is as far from all others as their length"
    for indices, rows in (([0], [[1.0], [2.0]]), ([0, 1], [1.0, 2.0]), ([0, 1], [[1.0], []]), ([0], [[]]), ([0], "text"), ([0], [["x"]])):
        with pytest.raises(lcache.ArgumentError):
            bank.observe(indices, rows, 0)
    other = bank.observe([0], [[1.0, 0.0, 0.0]], 0)  # another network: earlier embeddings do not count
    assert list(other.same) == [0]


@pytest.mark.parametrize("options", [{"lam": 1}, {"alpha": 0.5}, {"lam": 0, "alpha": 0.5}, {"lam": 1, "alpha": 1}])
def test_options(options):
    with pytest.raises(lcache.ArgumentError, match="lam"):
        Bank([0], Options(**options))


def test_frame():
    body = protocol.counts(1, 3, 17, b"\5\0\0\0\t\0\0\0", b"\7\0\0\0", b"\1\0\xff\xff", 9, b"\5\0\0\0")
    assert body.hex(" ") == "02 00 01 00 03 00 00 00 11 00 00 00 02 00 00 00 05 00 00 00 09 00 00 00 07 00 00 00 01 00 ff ff 09 00 00 00 01 00 00 00 05 00 00 00"


@pytest.fixture
def server(source_dir, tmp_path):
    server = Server(Folder(source_dir(), [64] * 120), tmp_path / "cache", epochs=4)
    server.ingest()
    yield server.start()
    server.stop()


def embeddings(server, indices):
    """One cluster for each class. Every sixth sample is between two clusters."""
    rng = numpy.random.default_rng(5)
    centres, noise = 3 * rng.normal(size=(7, 8)), 0.3 * rng.normal(size=(len(server.folder), 8))
    labels = numpy.asarray(server.folder.labels)
    rows = centres[labels] + noise
    rows[::6] = (centres[labels] + centres[(labels + 1) % 7])[::6] / 2 + noise[::6]
    return rows[list(indices)]


def test_graph():
    """While embeddings move, the graph finds nearly all neighbours that a loop over all pairs finds, and no false ones."""
    pytest.importorskip("hnswlib", reason="hnswlib is not installed")
    from lcache.neighbour_graph import GraphBank

    rng = numpy.random.default_rng(3)
    labels = rng.integers(0, 5, 1000).tolist()
    centres = 4 * rng.normal(size=(5, 16))
    graph, exact = (kind(labels, Options(k=500, lam=1, alpha=math.exp(-6.0), normalise=False)) for kind in (GraphBank, Bank))
    for epoch in range(4):
        found = wanted = differ = 0
        order = rng.permutation(1000).tolist()
        for at in range(0, 1000, 100):
            batch = order[at : at + 100]
            rows = (centres[labels][batch] + (0.5 + 0.7 ** (epoch + 1)) * rng.normal(size=(len(batch), 16))).astype("f4")
            got, want = graph.observe(batch, rows, epoch), exact.observe(batch, rows, epoch)
            assert list(got.indices) == list(want.indices)
            have, need = numpy.add(got.same, got.other), numpy.add(want.same, want.other)
            found, wanted, differ = found + int(have.sum()), wanted + int(need.sum()), differ + int((have > need + 2 + need // 20).sum())  # rounding to float16
        assert wanted > 1000 * 20 and found >= (0.95 if epoch == 0 else 0.8) * wanted, f"epoch {epoch}: {found} of {wanted} neighbours"
        assert differ == 0, f"epoch {epoch}: {differ} samples have neighbours that are none"


def test_graph_of_few():
    """Edge cases: the first batches, equal embeddings, a changed width, and unknown samples."""
    pytest.importorskip("hnswlib", reason="hnswlib is not installed")
    from lcache.neighbour_graph import GraphBank

    bank = GraphBank([0] * 60, Options(lam=1, alpha=0.5))
    assert list(bank.observe([7], [[1.0, 0.0]], 0).same) == [0]
    assert sorted(bank.observe(range(40), [[1.0, 0.0]] * 40, 0).same) == [39] * 40
    assert list(bank.observe([99], [[1.0, 0.0]], 0).same) == [0]
    assert list(bank.observe([1, 2], [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]], 1).same) == [1, 1]
    rest = GraphBank([0] * 60, Options())
    for epoch in range(2):
        assert len(rest.observe(range(60), numpy.eye(60), epoch).same) == 60


@needs_binary
def test_graph_of_a_job(server, monkeypatch):
    pytest.importorskip("hnswlib", reason="hnswlib is not installed")
    monkeypatch.setattr(importance, "MOST", 3)
    with server.connect() as job:
        job.importance("spider", lag=0)
        for batch in job.epoch(0):
            job.observe(batch.indices, [0.0] * len(batch), embeddings(server, batch.indices))
        job.end_epoch()
        assert len(job.order(1)) == 120
        s = job.stats()["jobs"][0]["importance"]
        assert (s["observations"], sum(s["refused"].values())) == (120, 0)


@needs_binary
@pytest.mark.parametrize("name", sorted(MAKERS))
def test_hard_samples_come_more_often(server, name):
    with server.connect() as job:
        job.importance("spider", lag=0, **({"neighbours": MAKERS[name]()} if name == "torch" else {}))
        seen = 0
        for epoch in range(2):
            for batch in job.epoch(epoch):
                seen += len(set(batch.indices))
                job.observe(batch.indices, [0.0] * len(batch), embeddings(server, batch.indices))
            job.end_epoch(accuracy=0.5)
        hard, order = set(range(0, 120, 6)), list(job.order(2))
        s = job.stats()["jobs"][0]["importance"]
        assert (s["method"], s["state"], s["observations"], sum(s["refused"].values())) == ("spider", "active", seen, 0)
        assert len(order) == 120
        assert sum(i in hard for i in order) / len(order) > 1.2 * len(hard) / 120, "no more often than others"
        for batch in job.epoch(2):
            server.check(batch, list(batch.indices))


@needs_binary
def test_observing_never_raises(server, caplog):
    with server.connect() as job:
        with pytest.raises(lcache.ArgumentError, match="neighbours='near'"):
            job.importance("spider", neighbours="near")
        job.importance("spider", lag=0, lam=1, alpha=0.5)
        with caplog.at_level(logging.WARNING, logger="lcache"):
            job.observe([1, 2], [1.0, 1.0])
            job.observe([1, 2], [1.0, 1.0], [[1.0]])
            job.observe([1, 2], [1.0, 1.0], [[float("nan")], [1.0]])
            job.observe([-1, 500, 3], [1.0] * 3, [[1.0]] * 3)
        assert len(caplog.records) == 1 and "embeddings" in caplog.text
        job.end_epoch()
        job.order(1)
        s = job.stats()["jobs"][0]["importance"]
        assert (s["observations"], s["refused"]["unknown"]) == (2, 2)


@needs_binary
def test_without_numpy(server, monkeypatch):
    monkeypatch.setitem(sys.modules, "numpy", None)
    with server.connect() as job, pytest.raises(lcache.Error, match="spider needs numpy"):
        job.importance("spider")


def test_too_many_samples(serve, path, monkeypatch):
    monkeypatch.setattr(importance, "MOST", 3)
    monkeypatch.setitem(sys.modules, "hnswlib", None)
    serve(features=["importance"])
    with lcache.connect(path, timeout=10) as job:
        with pytest.raises(lcache.ArgumentError, match="install hnswlib.*cuda"):
            job.importance("spider")
        with pytest.raises(lcache.ArgumentError, match="pip install hnswlib"):
            job.importance("spider", neighbours="hnswlib")
