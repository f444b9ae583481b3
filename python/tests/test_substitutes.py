"""A job that allows substitutes: other samples are served in place of L-samples that are not in memory, and the batch lists both."""

import random

import pytest
from realserver import Folder, Server, needs_binary

import lcache

SAMPLES = 600
LOW = {"method": "impact", "substitute": "low", "s_share": 0, "l_depth": 1, "cache": "500kB"}

pytestmark = needs_binary


@pytest.fixture(scope="module")
def folder(source_dir):
    draw = random.Random(3)
    return Folder(source_dir(), [1 + draw.randrange(30_000) for _ in range(SAMPLES)])


@pytest.fixture
def server(folder, tmp_path):
    server = Server(folder, tmp_path / "cache", epochs=9)
    server.ingest()
    yield server.start()
    server.stop()


def train(server, job, epoch, start=0, count=None):
    """Reads an epoch, or some batches of it, and observes the served samples. Returns (requested, served) of each batch."""
    got = []
    for batch in job.epoch(epoch, start=start):
        server.check(batch, list(batch.indices))
        job.observe(batch.indices, [(i * 37 + epoch * 11) % 101 / 10 for i in batch.indices])
        got.append((list(batch.requested), list(batch.indices)))
        if count is not None and len(got) == count:
            break
    return got


def flat(got):
    return [i for requested, _ in got for i in requested], [i for _, served in got for i in served]


def status(job):
    return job.stats()["jobs"][0]["importance"]


def test_low(server):
    """A served sample has its own bytes, label and name. job.order has the requested samples. Counters and digests distinguish the two."""
    with server.connect() as job:
        job.importance(**LOW)
        requested, served = flat(train(server, job, 0))
        assert requested == served
        job.end_epoch()
        total = 0
        for epoch in (1, 2):
            requested, served = flat(train(server, job, epoch))
            assert requested == list(job.order(epoch)) != served
            replaced = [i for asked, i in zip(requested, served) if asked != i]
            assert len(set(replaced)) == len(replaced) > 10, "a sample stands in for others once an epoch"
            total += len(replaced)
            job.end_epoch()
        s = status(job)
        assert (s["substitute"], s["substituted"], s["substituted_max"]) == ("low", total, 1)
        assert s["requested"] == sum(s[key] for key in ("h_hits", "l_hits", "homophily_hits", "substituted", "log_hits", "source_misses"))
        job.order(3)  # waits for the end of epoch 2
        next(iter(job.epoch(3)))
        digests = [(d["epoch"], d["order_digest"] == d["requested_digest"]) for d in job.stats()["jobs"][0]["epochs_done"]]
        assert digests == [(0, True), (1, False), (2, False)]


def test_by_index(server):
    """A get at a position, for the samples that the epoch has there, is answered like the epoch. Any other get returns exactly the requested samples."""
    with server.connect() as job:
        job.importance(**LOW)
        train(server, job, 0)
        job.end_epoch()
        size, order = job.batch_size, list(job.order(1))
        different = 0
        for number, batch in enumerate(job.epoch(1)):
            asked = order[number * size : (number + 1) * size]
            own = job.get(asked, at=(1, 0, number))
            assert (list(own.requested), list(own.indices)) == (asked, list(batch.indices))
            assert own.names == batch.names
            server.check(own, list(batch.indices))
            for at in (None, (1, 0, number + 1), (5, 0, number)):
                exact = job.get(asked, at=at)
                assert list(exact.indices) == list(exact.requested) == asked
            assert list(job.get(asked[1:], at=(1, 0, number)).indices) == asked[1:]
            different += asked != list(batch.indices)
        assert different > 2


def test_merged(server):
    """Merged batches also list the requested samples."""
    with server.connect() as job:
        job.importance(**LOW)
        train(server, job, 0)
        job.end_epoch()
        kept = list(job.epoch(1))
        merged = lcache.batch.Batch.merged(kept)
        assert list(merged.requested) == list(job.order(1)) != list(merged.indices)
        assert list(merged.indices) == [i for batch in kept for i in batch.indices]


@pytest.mark.parametrize("at", [0, 2])
def test_killed(server, at):
    """After kill -9 in the middle of an epoch, and at its end, the new server has the requested and the served order again, batch by batch."""
    with server.connect() as job:
        job.importance(**LOW)
        train(server, job, 0)
        job.end_epoch()
        whole = train(server, job, 1)
        server.kill()
        server.start()
        assert train(server, job, 1, start=at) == whole[at:]
    with server.connect() as job:
        job.importance(**LOW)
        assert train(server, job, 1) == whole


def test_refused(server):
    """Each error is one sentence that says what to do."""
    with server.connect() as job:
        for options, why in (
            ({"method": "shade", "substitute": "low"}, "shade serves no sample in place of another one"),
            ({"method": "impact", "substitute": "class"}, 'knows "low"'),
            ({"method": "impact", "substitute": "low", "lag": "split"}, "give lag 0 or 1"),
            ({"method": "impact", "substitute": True}, "substitute"),
        ):
            with pytest.raises(lcache.ArgumentError, match=why):
                job.importance(**options)
        job.importance(**LOW)
        with pytest.raises(lcache.ArgumentError, match="substitute low and"):
            job.importance(**{**LOW, "substitute": None, "lag": 0})
