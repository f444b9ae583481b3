"""Rules for clients that read out of order, each with a real server: it may cost speed, but never a wrong byte or a hang."""

import itertools
import logging
import random
import threading

import oracle
import pytest
from processes import read_in_processes
from realserver import together
from waits import until

import lcache


def no_source(cache):
    """If the log has all samples, no sample may come from elsewhere."""
    job = cache.job()
    assert [job[k] for k in ("misses", "source_bytes", "corrupt_samples", "reorder_dropped")] == [0, 0, 0, 0]
    return job


def test_ranks_one_after_the_other(serve, reader, small):
    cache = serve(small, world=3, epochs=3)
    one = reader(cache)
    for epoch in range(3):
        for rank in (2, 0, 1):
            assert one.ask("epoch", epoch=epoch, rank=rank) == len(cache.batches(epoch, rank))
    assert no_source(cache)["divergences"] == 0


def test_a_rank_that_never_attaches(serve, reader, small):
    cache = serve(small, world=4, epochs=4)
    there = [reader(cache), reader(cache)]
    for epoch in range(4):
        for r, rank in zip(there, (1, 3)):
            r.send("epoch", epoch=epoch, rank=rank)
        assert [r.answer() for r in there] == [len(cache.batches(epoch, rank)) for rank in (1, 3)]
    job = no_source(cache)
    assert job["divergences"] == 0
    assert job["random_reads"] < job["samples_delivered"] / 2, "the absent rank holds up the window"


@pytest.mark.any_io
def test_a_client_that_hoards(serve, reader, small, caplog):
    """A client beyond its credits gets private copies, with one warning. All kept bytes stay unchanged, and others continue to read."""
    cache = serve(small, world=2, epochs=3, batch_size=8, memory="24MiB")
    other = reader(cache)
    with cache.connect() as job, caplog.at_level(logging.WARNING, logger="lcache"):
        limit = job._link.session.info.credit_bytes
        kept = []
        for epoch, stop in ((0, len(cache.batches(0, 0))), (1, 10)):
            kept += zip(itertools.islice(job.epoch(epoch, rank=0), stop), cache.batches(epoch, 0))
            assert other.ask("epoch", epoch=epoch, rank=1, stop=stop) == stop
        held = job._link.session.held
        assert 0 < held <= limit < sum(len(s) for batch, _ in kept for s in batch.samples)
        assert [r.levelno for r in caplog.records] == [logging.WARNING]
        other.ask("epoch", epoch=2, rank=1, stop=10)
        for batch, indices in kept:
            cache.check(batch, indices)
        del batch
        kept.clear()
        assert job._link.session.held == 0
        cache.read(job, 2, 0)
    no_source(cache)


def test_get_in_the_middle_of_an_epoch(serve, small, draw):
    cache = serve(small, world=2, epochs=2)
    with cache.connect() as job:
        for epoch in range(2):
            expected = [cache.batches(epoch, 0), cache.batches(epoch, 1)]
            for number, batches in enumerate(zip(job.epoch(epoch, rank=0), job.epoch(epoch, rank=1))):
                for rank, batch in enumerate(batches):
                    cache.check(batch, expected[rank][number])
                indices = [draw.randrange(len(small)) for _ in range(draw.randrange(20))]
                indices += indices[:3]
                cache.check(job.get(indices), indices)
        # With a position, which is only a hint: the right one, one that others have read, and wrong ones.
        cache.check(job.get(expected[0][2], at=(1, 0, 2)), expected[0][2])
        cache.check(job.get(expected[0][2], at=(0, 1, 5)), expected[0][2])
        cache.check(job.get([7, 7, 0], at=(1, 0, 3)), [7, 7, 0])
        with pytest.raises(lcache.ArgumentError, match=str(len(small))):
            job.get([len(small)])
        cache.check(job.get([3]), [3])
    job = no_source(cache)
    assert job["divergences"] == 2
    assert job["first_divergence"] == {"epoch": 0, "rank": 1, "batch": 5, "position": 0}


def test_break_and_start(serve, reader, small):
    cache = serve(small, epochs=4, batch_size=8)
    size = len(cache.batches(0, 0))
    one, two = reader(cache), reader(cache)
    assert one.ask("epoch", epoch=0, rank=0, stop=size // 3) == size // 3
    assert two.ask("epoch", epoch=0, rank=0, start=size // 3) == size - size // 3
    assert one.ask("epoch", epoch=1, rank=0, stop=5) == 5
    assert one.ask("epoch", epoch=1, rank=0, start=3, stop=9) == 6  # some steps back
    assert one.ask("epoch", epoch=2, rank=0, start=size - 4) == 4
    assert one.ask("epoch", epoch=2, rank=0, start=size) == 0
    assert one.ask("epoch", epoch=3, rank=0) == size
    assert no_source(cache)["divergences"] == 0


def test_epochs_out_of_turn(serve, reader, small):
    """Epochs are skipped, repeated, read far ahead and back. After some consecutive epochs the log has caught up: it is read in large pieces again, and written."""
    cache = serve(small, world=2, epochs=1000)
    readers = [reader(cache), reader(cache)]
    for epoch in (0, 3, 3, 2, 900, 0, 901):
        for rank, r in enumerate(readers):
            r.send("epoch", epoch=epoch, rank=rank, stop=9)
        assert [r.answer() for r in readers] == [9, 9]
    read_in_processes(readers, 902, 905)
    for epoch in range(905, 925, 2):  # on a busy machine the layout of the next epoch may be too late for some epochs
        before = no_source(cache)
        read_in_processes(readers, epoch, epoch + 2)
        after = no_source(cache)
        if after["log_write_bytes"] > before["log_write_bytes"]:
            break
    assert after["log_write_bytes"] > before["log_write_bytes"]
    assert after["random_reads"] - before["random_reads"] < len(small) / 4
    assert after["divergences"] == 0
    with cache.connect() as job:
        for epoch, rank in ((1000, 0), (0, 2)):
            with pytest.raises(lcache.ArgumentError):
                next(job.epoch(epoch, rank=rank))
        cache.read(job, 999, 1, start=3, stop=5)


def test_threads(serve, small):
    """Threads share one job: two read epochs and two read by index, at the same time."""
    cache = serve(small, world=2, epochs=3)
    over = threading.Event()
    asked = []
    with cache.connect() as job:

        def epochs(rank):
            try:
                for epoch in range(3):
                    cache.read(job, epoch, rank)
            finally:
                over.set()

        def indices(seed):
            mine = random.Random(seed)
            while not over.is_set() or not asked:
                some = mine.sample(range(len(small)), 9)
                cache.check(job.get(some), some)
                asked.append(seed)

        together((epochs, 0), (epochs, 1), (indices, 1), (indices, 2))
    no_source(cache)


def orders(small, draw, epochs):
    """Orders of the caller. Every second one has batches of any sizes, including empty batches and single samples."""
    for epoch in range(epochs):
        order = draw.sample(range(len(small)), len(small))
        if epoch % 2 == 0:
            yield order, oracle.batches(order, 16)
            continue
        sizes = [0, 1]
        while sum(sizes) < len(order):
            sizes.append(min(draw.randrange(1, 50), len(order) - sum(sizes)))
        cut = [order[sum(sizes[:i]) : sum(sizes[: i + 1])] for i in range(len(sizes))]
        yield cut, cut


def test_push_order(prepare, small, draw):
    """For a cache without a recipe, the client pushes orders one epoch ahead, and again after a restart of the server."""
    cache = prepare(small, epochs=0)
    cache.extra = ["--recipe", ""]
    cache.start()
    with cache.connect() as job:
        pushed = list(orders(small, draw, 5))
        job.push_order(0, 0, pushed[0][0])
        for epoch, (_, expected) in enumerate(pushed):
            if epoch + 1 < len(pushed):
                job.push_order(epoch + 1, 0, pushed[epoch + 1][0])
            for number, batch in enumerate(job.epoch(epoch)):
                cache.check(batch, expected[number])
                if epoch >= 2 and number == len(expected) // 2:
                    del batch
                    cache.kill() if epoch == 3 else cache.stop()
                    cache.start()
            assert number + 1 == len(expected)


def test_push_order_over_a_recipe(serve, small, draw):
    """A pushed order replaces the recipe's for its epoch and rank only."""
    cache = serve(small, world=2, epochs=4)
    mine = draw.choices(range(len(small)), k=100)  # some twice, most never
    with cache.connect() as job:
        job.push_order(1, 1, mine)
        for epoch in range(4):
            cache.read(job, epoch, 0)
            if epoch != 1:
                cache.read(job, epoch, 1)
                continue
            for number, batch in enumerate(job.epoch(1, rank=1)):
                cache.check(batch, oracle.batches(mine, 16)[number])
            assert number == 6
        for epoch, rank, order in ((4, 0, [1]), (0, 2, [1]), (0, 0, [len(small)])):
            with pytest.raises(lcache.ArgumentError):
                job.push_order(epoch, rank, order)
    no_source(cache)


# The status document, with the type of each value.
NUMBER, TEXT, FLAG, LIST = (int, float), str, bool, list
STATUS = {
    "schema": int, "version": TEXT, "pid": int, "uptime_seconds": NUMBER, "io_engine": TEXT, "direct": FLAG, "page_bytes": int,
    "memory_bytes": int, "memory_limit_bytes": int, "cache": dict, "jobs": LIST,
}
CACHE = {"dirs": LIST, "budget_bytes": int, "used_bytes": int, "state": TEXT}
JOB = {
    **dict.fromkeys("name source recipe layout layout_reason bound_by".split(), TEXT),
    "seed": (int, str),
    **dict.fromkeys(
        """samples dataset_bytes epochs epoch chunks_delivered samples_delivered bytes_delivered hits misses source_bytes source_reads
        source_retries log_read_bytes log_read_ops log_write_bytes log_write_ops random_reads reorder_dropped evicted_segments ready_batches
        corrupt_samples stale_samples divergences""".split(),
        int,
    ),
    "draining": FLAG, "stall_seconds": NUMBER, "consumer_wait_seconds": NUMBER,
    **dict.fromkeys("loop_wait_seconds loop_seconds decode_seconds".split(), (int, float, type(None))),
    "first_divergence": (dict, type(None)), "ranks": LIST, "epochs_done": LIST,
}
RANK = {"rank": int, "pid": int, "position": int, "loop_wait_seconds": (int, float, type(None)), "leased_bytes": int}
EPOCH_DONE = {
    **dict.fromkeys("epoch hits misses log_read_bytes log_write_bytes source_bytes".split(), int),
    "seconds": NUMBER, "stall_seconds": NUMBER, "loop_wait_seconds": (int, float, type(None)), "order_digest": TEXT,
}


def test_stats(serve, small):
    """job.stats() has every documented name with the right type, and consistent figures."""
    cache = serve(small, world=2, epochs=2)
    with cache.connect() as job:
        for epoch in range(2):
            together((cache.read, job, epoch, 0), (cache.read, job, epoch, 1))
        status = until(lambda: (s := job.stats())["jobs"][0]["epochs_done"][1:] and s, "two finished epochs")
        assert cache.status()["jobs"][0].keys() == status["jobs"][0].keys()
    (one,) = status["jobs"]
    for document, kinds in [(status, STATUS), (status["cache"], CACHE), (one, JOB)] + [(r, RANK) for r in one["ranks"]] + [(e, EPOCH_DONE) for e in one["epochs_done"]]:
        for name, kind in kinds.items():
            assert isinstance(document[name], kind), f"{name} is {document[name]!r}"
    assert (status["schema"], status["pid"], status["cache"]["dirs"]) == (1, cache.process.pid, [cache.cache])
    assert (one["samples"], one["dataset_bytes"], one["epochs"], one["layout"]) == (len(small), small.bytes, 2, "log")
    delivered = sum(len(cache.order(e, r)) for e in range(2) for r in range(2))
    assert one["samples_delivered"] == one["hits"] + one["misses"] == delivered
    assert one["chunks_delivered"] == sum(len(cache.batches(e, r)) for e in range(2) for r in range(2))
    assert one["bytes_delivered"] == sum(len(small.contents[i]) for e in range(2) for r in range(2) for i in cache.order(e, r))
    assert [(e["epoch"], e["hits"] + e["misses"]) for e in one["epochs_done"]] == [(e, sum(len(cache.order(e, r)) for r in range(2))) for e in range(2)]
    assert sum(r["leased_bytes"] for r in one["ranks"]) == 0
    assert status["cache"]["used_bytes"] <= status["cache"]["budget_bytes"]
