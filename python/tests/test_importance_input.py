"""Invalid input to a job with importance, at a real server: it is refused and counted, valid input is used, and orders stay valid."""

import contextlib
import itertools
import math
import struct
from array import array

import pytest
from realserver import Folder, Server, needs_binary

import lcache
from lcache._client import protocol

numpy = pytest.importorskip("numpy", reason="numpy is not installed")

SAMPLES, SIZE = 96, 16
NAN, INF = float("nan"), float("inf")
NUMBERS = itertools.count()  # to name jobs

pytestmark = needs_binary


@pytest.fixture(scope="module")
def server(source_dir, tmp_path_factory):
    server = Server(Folder(source_dir(), [100] * SAMPLES), tmp_path_factory.mktemp("cache") / "c", epochs=0, batch_size=SIZE)
    server.ingest()
    yield server.start()
    server.stop()


@pytest.fixture
def made(server):
    """Makes new jobs, by default with impact and orders from the newest losses."""
    with server.connect() as plain:

        def make(method="impact", **options):
            name = f"job-{next(NUMBERS)}"
            job = plain.named(name)
            job.importance(method, name=name, **({"lag": 0, "cache": 0} | ({"s_share": 0} if method == "impact" else {}) | options))
            return job

        yield make


def status(job):
    """The job's importance in the status. It is complete up to the last next_epoch: observations are counted a while after they are sent."""
    (s,) = [entry["importance"] for entry in job.stats()["jobs"] if entry["id"] == job.observer.accepted["name"]]
    return s


def refused(job):
    return {reason: count for reason, count in status(job)["refused"].items() if count}


def next_epoch(job, **progress):
    """Ends the epoch, and returns the order of the next one."""
    epoch = job.observer.epoch
    job.end_epoch(**progress)
    return list(job.order(epoch + 1))


def observe_all(job, loss=float, but=()):
    for at in range(0, SAMPLES, SIZE):
        indices = [i for i in range(at, at + SIZE) if i not in but]
        job.observe(indices, [loss(i) for i in indices])


def order_of(make, values):
    """The order that is drawn from these losses alone."""
    job = make()
    for at in range(0, SAMPLES, SIZE):
        job.observe(range(at, at + SIZE), values[at : at + SIZE])
    return next_epoch(job)


def test_invalid_losses(made):
    job = made()
    observe_all(job)
    job.observe([90, 91, 92], [NAN, 0.5, INF])
    job.observe([93, 94], [-INF, NAN])  # all of a batch: nothing changes
    values = [float(i) for i in range(SAMPLES)]
    values[91] = 0.5
    assert next_epoch(job) == order_of(made, values)
    assert refused(job) == {"notfinite": 4}


def test_negative_losses_are_zero(made):
    job = made()
    observe_all(job, lambda i: float(i - 50))
    assert next_epoch(job) == order_of(made, [max(0.0, i - 50.0) for i in range(SAMPLES)])


def test_unknown_indices(made):
    job = made()
    observe_all(job)
    job.observe([-1, SAMPLES, 2**32 - 1, 2**40, 3], [9.0] * 5)
    assert max(next_epoch(job)) < SAMPLES
    s = status(job)
    assert (s["refused"]["unknown"], s["observations"]) == (4, SAMPLES + 1)


def test_twice_in_a_batch(made):
    """If a sample has several losses, the last one counts."""
    job = made()
    observe_all(job)
    job.observe([5, 7, 5], [80.0, 7.0, 1.0])
    values = [float(i) for i in range(SAMPLES)]
    values[5] = 1.0
    assert next_epoch(job) == order_of(made, values)


def test_shapes(made):
    """The whole observation is refused, and the connection stays."""
    job = made()
    observe_all(job)
    before = job.info.server
    job.observe([1, 2], [1.0])
    job.observe([], [])
    job.observe([0] * 65_537, [1.0] * 65_537)
    job.observer.flush()
    job.observer.link.session.send_now([(protocol.OBSERVE, struct.pack("<BBHIII", 1, 0, 0, 0, 99, 65_537) + bytes(8 * 65_537))], None)
    next_epoch(job)
    assert refused(job) == {"shape": 4}
    assert (job.info.server, status(job)["observations"]) == (before, SAMPLES)


def test_a_length_that_lies_closes(server, made):
    """A protocol violation ends the connection, and the job continues."""
    job = made()
    name = job.observer.accepted["name"]
    observe_all(job)
    lied = job.observer.link.session._connection
    job.observer.flush()
    job.observer.link.session.send_now([(protocol.OBSERVE, struct.pack("<BBHIII", 1, 0, 0, 0, 99, 1000) + bytes(16))], None)
    with contextlib.suppress(lcache.ProtocolError):  # no error if the client notices the end first, and connects again
        job.order(0)
    assert lied.broken is not None or job.observer.link.session._connection is not lied
    with server.connect() as second:
        other = second.named(name)
        other.importance("impact", name=name, lag=0, cache=0, s_share=0)
        next_epoch(other)
        assert status(other)["observations"] == SAMPLES


def test_epochs_that_are_not_now(made):
    """Observations of the previous epoch are accepted, because pipelines lag. Older and future ones are refused."""
    job = made()
    observe_all(job)
    next_epoch(job)
    next_epoch(job)
    for epoch in (0, 4, 2**32 - 1):
        job.observe([1, 2], [1.0, 1.0], epoch=epoch)
    job.observe([1, 2, 3], [1.0, 1.0, 1.0], epoch=1)
    next_epoch(job)
    s = status(job)
    assert (s["refused"]["stale"], s["observations"]) == (6, SAMPLES + 3)


def test_indices_that_were_not_delivered(made):
    """A loop may observe samples that were not delivered; they are counted."""
    job = made()
    batch = job.get(range(10))
    job.observe(batch.indices, [1.0] * 10)
    job.observe([50, 51], [1.0, 1.0])
    next_epoch(job)
    s = status(job)
    assert (s["observations"], s["undelivered"]) == (12, 12)  # none of the order was delivered


def test_without_observations(made):
    """Epochs without observations have the recipe's order. After two of them the state is idle, until observations return."""
    job = made()
    assert sorted(job.order(0)) == list(range(SAMPLES))
    states = []
    for _ in range(3):
        assert sorted(next_epoch(job)) == list(range(SAMPLES))
        states.append(status(job)["state"])
    assert states == ["active", "idle", "idle"]
    observe_all(job)
    assert len(next_epoch(job)) < SAMPLES
    assert status(job)["state"] == "active"
    for _ in range(2):
        order = next_epoch(job)
    assert (sorted(order), status(job)["state"]) == (list(range(SAMPLES)), "idle"), "drawn from outdated values"


def test_half_is_observed(made):
    """If only some samples are observed, the others keep their values."""
    job = made()
    observe_all(job)
    first = next_epoch(job)
    assert status(job)["observed_share"] == 1
    observe_all(job, lambda i: 1000.0, but=range(10, SAMPLES))
    second = next_epoch(job)
    assert status(job)["observed_share"] == pytest.approx(10 / SAMPLES)
    assert len(second) == len(first)
    assert sum(i in second for i in range(10)) > 7 > sum(i in first for i in range(10))
    assert sum(i in second for i in range(80, SAMPLES)) >= 10


@pytest.mark.parametrize("loss", [0.0, 3.5])
def test_all_losses_are_the_same(made, loss):
    """With equal losses no sample is preferred."""
    job = made()
    observe_all(job, lambda _: loss)
    seen = set()
    for _ in range(8):
        order = next_epoch(job)
        assert len(set(order)) == len(order) < 0.6 * SAMPLES
        seen.update(order)
        observe_all(job, lambda _: loss)
    assert len(seen) > 0.9 * SAMPLES


@pytest.mark.parametrize("policy", ["next-use", "paper", "lru", "minio"])
@pytest.mark.parametrize("method", ["impact", "shade"])
def test_memory_for_less_than_a_sample(made, method, policy):
    job = made(method, cache=99, policy=policy)
    for batch in job.epoch(0):
        job.observe(batch.indices, [float(i) for i in batch.indices])
    for batch in job.epoch(1):
        assert [len(view) for view in batch.samples] == [100] * len(batch)
    s = status(job)  # deliveries are counted before the client gets them
    assert (s["h_hits"], s["h_bytes"]) == (0, 0)


@pytest.mark.parametrize("samples, method", [(1, "impact"), (1, "shade"), (1, "spider"), (5, "impact")])
def test_fewer_samples_than_a_batch(source_dir, tmp_path, samples, method):
    server = Server(Folder(source_dir(), [100] * samples, classes=1), tmp_path / "cache", epochs=0, batch_size=SIZE)
    server.ingest()
    server.start()
    try:
        with server.connect() as job:
            job.importance(method, lag=0, **({"s_share": 0} if method == "impact" else {}))
            for epoch in range(3):
                read = [i for batch in job.epoch(epoch) for i in batch.indices]
                assert read and set(read) <= set(range(samples))
                job.observe(read, [1.0 + i for i in read], numpy.ones((len(read), 3)) if method == "spider" else None)
            assert samples > 1 or list(job.order(3)) == [0]
    finally:
        server.stop()


def embed(job, width, indices=range(SIZE)):
    job.observe(indices, [0.0] * len(indices), numpy.random.default_rng(width).normal(size=(len(indices), width)))


def test_embeddings_with_invalid_values(made):
    job = made("spider")
    rows = numpy.ones((4, 3))
    rows[1, 2], rows[3, 0] = NAN, -INF
    job.observe([1, 2, 3, 4], [0.0] * 4, rows)
    next_epoch(job)
    assert (refused(job), status(job)["observations"]) == ({"notfinite": 2}, 2)


def test_embeddings_of_other_lengths(made):
    """A batch of embeddings with different lengths is refused. The length may change once in an epoch. A second change ends observations: epochs have the recipe's order again."""
    job = made("spider")
    embed(job, 8)
    embed(job, 8, range(SIZE, 2 * SIZE))
    job.observe([0, 1], [0.0, 0.0], [[1.0, 2.0], [1.0]])
    job.observe([0, 1], [0.0, 0.0], [[1.0, 2.0]])
    next_epoch(job)
    assert refused(job) == {"dimension": 2, "shape": 1}
    embed(job, 4)
    next_epoch(job)
    embed(job, 8)
    assert sorted(next_epoch(job)) != list(range(SAMPLES))
    assert (refused(job), status(job)["observations"], status(job)["state"]) == ({"dimension": 2, "shape": 1}, 4 * SIZE, "active")
    embed(job, 4)
    embed(job, 8)
    embed(job, 8)
    assert sorted(next_epoch(job)) == list(range(SAMPLES))
    assert (refused(job), status(job)["observations"], status(job)["state"]) == ({"dimension": 2 + 2 * SIZE, "shape": 1}, 5 * SIZE, "idle")


def test_neighbours_are_those_of_the_newest_length(made):
    """After a change of the embeddings' length that was not refused, no substitutes come from neighbours of the old length. Also without end_epoch."""
    for ends in (True, False):
        job = made("spider", cache="4kB", substitute="class", ratio=(0.5, 0.5), lam=1, alpha=math.exp(-0.1), normalise=False)

        def replaced(epoch, job=job):
            batches = list(job.epoch(epoch))
            return sum(i != asked for batch in batches for i, asked in zip(batch.indices, batch.requested))

        near = numpy.eye(8)[numpy.asarray(job.labels()) % 8]  # all samples of a class have the same embedding
        epoch = 0
        while not replaced(epoch):  # nodes are read in parallel with the training
            for at in range(0, SAMPLES, SIZE):
                job.observe(range(at, at + SIZE), [0.0] * SIZE, near[at : at + SIZE])
            if ends:
                job.end_epoch()
            epoch += 1
            assert epoch < 50
        job.observe(range(SIZE), [0.0] * SIZE, [[10.0 * i, 0.0] for i in range(SIZE)])  # no two are neighbours
        if ends:
            job.end_epoch()
        assert replaced(epoch + 1) == 0
        assert refused(job) == {}


def test_ranks_that_differ(server, tmp_path):
    """Also differences in parameters that only the training process uses."""
    array("f", [0.5] * SAMPLES).tofile(open(tmp_path / "a", "wb"))
    array("f", [0.6] * SAMPLES).tofile(open(tmp_path / "b", "wb"))
    with server.connect() as plain, server.connect() as second:
        for method, one, other, why in (
            ("spider", {"lam": 1, "alpha": 0.5}, {"lam": 2, "alpha": 0.5}, "lam 1 and 2"),
            ("spider", {}, {"normalise": False}, "normalise none and False"),
            ("impact", {"irreducible": tmp_path / "a"}, {"irreducible": tmp_path / "b"}, r"irreducible a \(crc .*\) and b \(crc"),
            ("impact", {"irreducible": tmp_path / "a"}, {}, r"irreducible a \(crc .*\) and none"),
        ):
            name = f"job-{next(NUMBERS)}"
            plain.named(name).importance(method, name=name, **one)
            with pytest.raises(lcache.ArgumentError, match=why):
                second.named(name).importance(method, name=name, **other)
            second.named(name).importance(method, name=name, **one)
