"""Stops and kills: the next ingest continues, a restarted server serves the valid samples, and clients continue in the same order.

LCACHE_KILLS is the number of kills (default: 12), LCACHE_SEED the seed.
"""

import itertools
import os
import random
import shutil
import signal
import subprocess
import time

import pytest
import realserver
from processes import read_in_processes
from waits import DEADLINE, wait_for_end

import lcache

KILLS = int(os.environ.get("LCACHE_KILLS", "12"))


def test_a_stop_in_the_middle(serve, reader, small, draw):
    """SIGTERM while clients read, once in each epoch. A clean stop keeps everything: nothing is read from the source."""
    cache = serve(small, world=2, epochs=4, batch_size=8)
    readers = [reader(cache), reader(cache)]
    assert all([r.ask("ready") for r in readers])
    size = len(cache.batches(0, 0))
    for epoch in range(4):
        at = draw.randrange(1, size)
        for rank, r in enumerate(readers):
            r.send("epoch", epoch=epoch, rank=rank, report=1)
        while readers[epoch % 2].line()["at"][1] < at:
            pass
        said = cache.stop()
        cache.start()
        assert [r.answer() for r in readers] == [size, size]
        job = cache.job()
        # A disk that does not answer in time is another cause. late_blocks, reorder_dropped and the server's log show it.
        assert (job["misses"], job["source_bytes"], job["corrupt_samples"], job["divergences"]) == (0, 0, 0, 0), (job, said)


def test_stops_in_five_seconds(serve, reader, small):
    """A stop ends in time, with clients that read, hold batches, wait, or are silent."""
    cache = serve(small, world=2, epochs=1000, batch_size=8)
    reading, holding, silent = reader(cache), reader(cache), reader(cache)
    silent.ask("ready")
    holding.ask("keep", epoch=0, rank=1, count=5)
    reading.send("epochs", first=0, last=1000, rank=0, report=1)
    for _ in range(20):
        reading.line()
    process, cache.process = cache.process, None
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=5)
    finally:
        process.kill()
        _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert not os.path.exists(cache.socket)
    assert holding.ask("check_kept") == 5


@pytest.mark.any_io
def test_a_second_server(serve, small):
    """A second server exits with 1, and names the first. So do other commands that need the cache exclusively. The first server is not affected."""
    cache = serve(small, epochs=1)
    for command in (["serve"], ["ingest", "--source", small.root], ["verify"]):
        done = realserver.lcache_command(*command, "--cache", cache.cache, check=False)
        assert done.returncode == 1, (command, done)
        (line,) = done.stderr.splitlines()
        assert str(cache.process.pid) in line
    with cache.connect() as job:
        cache.read(job, 0, 0)
    holder = cache.process.pid
    cache.kill()
    cache.start()  # at once: after a kill nothing must be cleaned up
    assert cache.status()["pid"] != holder


def test_kills_of_ingest(prepare, tree, draw):
    """An ingest that is killed at random points and run again continues. In the end all samples are there, once, and verified."""
    cache = prepare(tree, epochs=2, world=2, batch_size=13, budget=tree.bytes + (12 << 20))
    full = sum(len(c) > 0 for c in tree.contents)
    shutil.rmtree(cache.cache)
    began = time.monotonic()
    assert not kill_an_ingest(cache, DEADLINE)
    whole = time.monotonic() - began
    killed = resumed = 0
    while killed < KILLS:
        shutil.rmtree(cache.cache)
        for _ in range(draw.randrange(1, 4)):
            killed += kill_an_ingest(cache, draw.uniform(0.2, 1.1) * whole)
            assert not os.path.isdir(cache.cache) or cache.used() <= cache.budget
        report = cache.ingest()
        assert cache.used() <= cache.budget
        assert report["already"] + report["read_samples"] == full
        assert (report["stored_samples"], report["stored_bytes"]) == (full, tree.bytes), f"after {killed} kills"
        resumed += 0 < report["already"] < full
    print(f"{killed} kills, {resumed} times something was there but not all")
    assert cache.ingest()["read_bytes"] == 0
    report = cache.verify()
    assert (report["samples"], report["corrupt"], report["different"]) == (len(tree), 0, 0)
    cache.start()
    cache.read_all()
    job = cache.job()
    assert (job["misses"], job["source_bytes"], job["corrupt_samples"]) == (0, 0, 0)


def kill_an_ingest(cache, seconds):
    """Starts an ingest and kills it. Returns whether it was still running."""
    job = {"recipe": "torch.distributed_sampler", "seed": cache.seed, "epochs": cache.epochs, "batch-size": cache.batch_size, "world-size": cache.world}
    flags = {"source": cache.folder.root, "cache": cache.cache, "budget": cache.budget, "jobs": 2, **job}
    command = [realserver.BINARY, "ingest", "--quiet"] + [f"--{name}={value}" for name, value in flags.items()]
    process = subprocess.Popen(command + list(map(str, cache.extra)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
    _, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode in (0, -signal.SIGKILL), errors.decode()
    return process.returncode != 0


@pytest.mark.parametrize("part", [None, 0.5])
def test_kills_of_the_server(prepare, reader, small, draw, part):
    """The server is killed at random batches of a training run, in the middle of reordering. The clients continue, exact to the byte and the order."""
    budget = int(part * small.bytes) + (5 << 20) if part else None
    cache = prepare(small, world=2, epochs=10_000, batch_size=8, budget=budget)
    cache.start()
    readers = [reader(cache), reader(cache)]
    assert all([r.ask("ready") for r in readers])
    size = len(cache.batches(0, 0))
    reordering = 0
    epoch, at = 0, 0
    for kill in range(KILLS):
        # Both ranks continue from their positions, as in a training run. The kill comes after some batches of one of them.
        victim = draw.randrange(2)
        last = epoch + 2
        for rank, r in enumerate(readers):
            r.send("epochs", first=epoch, last=last, rank=rank, report=1)
        for _ in range(draw.randrange(1, 2 * size)):
            at = readers[victim].line()["at"]
        job = cache.job()
        reordering += 0 < job["log_write_ops"]
        cache.kill()
        assert cache.used() <= cache.report["budget_bytes"]
        cache.start()
        assert [r.answer() for r in readers] == [2 * size, 2 * size], f"kill {kill} at {at}"
        assert cache.used() <= cache.report["budget_bytes"]
        job = cache.job()
        assert (job["corrupt_samples"], job["divergences"]) == (0, 0)
        epoch = last
    assert reordering >= KILLS // 3, "too few of the kills met a server that had begun to reorder"
    read_in_processes(readers, epoch, epoch + 2)
    before = cache.job()
    read_in_processes(readers, epoch + 2, epoch + 4)
    after = cache.job()
    if part is None:
        assert after["source_bytes"] == before["source_bytes"], "lost samples were not put back into the log"
    for r in readers:
        r.close()
    cache.stop()
    report = cache.verify()
    assert (report["corrupt"], report["different"]) == (0, 0)


def test_kills_without_a_recipe(small, disk, monkeypatch, draw):
    """A job pushes its orders to its own server, which is killed anywhere. The next job continues, or begins with other orders. It finds a log in an
    order that was not pushed yet, or the two Logfiles of an interrupted scan."""
    monkeypatch.setenv("LCACHE_BIN", realserver.BINARY)
    monkeypatch.setenv("LCACHE_LINGER", "20")
    monkeypatch.setenv("XDG_RUNTIME_DIR", disk)
    size, steps = 8, -(-len(small) // 8)
    seed = epoch = at = reads = 0

    def order(epoch):
        indices = list(range(len(small)))
        random.Random(f"{seed} {epoch}").shuffle(indices)
        return [indices[i : i + size] for i in range(0, len(indices), size)]

    for kill in range(KILLS // 2):
        with lcache.open(small.root, os.path.join(disk, "caches")) as job:
            for e in (epoch, epoch + 1):
                job.push_order(e, 0, order(e))
            for _ in range(draw.randrange(1, steps)):
                if at == steps:
                    epoch, at = epoch + 1, 0
                    job.push_order(epoch + 1, 0, order(epoch + 1))
                (batch,) = itertools.islice(job.epoch(epoch, start=at), 1)
                assert list(batch.indices) == order(epoch)[at], f"kill {kill}, epoch {epoch} batch {at}"
                for i, sample in zip(batch.indices, batch.samples):
                    assert sample == small.contents[i], f"kill {kill}, epoch {epoch} batch {at}: sample {i}"
                at += 1
            now = job.stats()["jobs"][0]
            assert (now["corrupt_samples"], now["divergences"]) == (0, 0)
            reads += now["source_reads"]
            pid = job.pid
            del batch, sample
        time.sleep(draw.uniform(0, 0.05))  # so that the kill comes at a random moment of the server's work between requests
        os.kill(pid, signal.SIGKILL)
        wait_for_end(pid)
        if draw.randrange(4) == 0:
            seed, epoch, at = seed + 1, 0, 0
    print(f"{KILLS // 2} kills, {reads} samples read from the source, of {len(small)}")


def test_kills_of_recovery(prepare, small, draw):
    """A server that is killed repeatedly while it starts leaves a usable cache, including an epoch that was being reordered."""
    cache = prepare(small, epochs=10_000, batch_size=8)
    cache.start()
    began = time.monotonic()
    cache.kill()
    cache.start()
    whole = time.monotonic() - began
    size = len(cache.batches(0, 0))
    killed = 0
    while killed < KILLS:
        epoch, stop = killed % 7, draw.randrange(1, size)
        with cache.connect() as job:
            cache.read(job, epoch, 0, stop=stop)
        cache.kill()
        for _ in range(draw.randrange(1, 5)):
            process = subprocess.Popen([realserver.BINARY, "serve", "--cache", cache.cache, "--quiet"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            try:
                process.wait(timeout=draw.uniform(0, whole))
            except subprocess.TimeoutExpired:
                process.kill()
            _, errors = process.communicate(timeout=DEADLINE)
            assert process.returncode == -signal.SIGKILL, errors.decode()
            killed += 1
        assert cache.used() <= cache.report["budget_bytes"]
        cache.start()
        assert cache.job()["corrupt_samples"] == 0
    print(f"{killed} kills of servers that were starting")
    with cache.connect() as job:
        for epoch in range(3):
            cache.read(job, epoch, 0)
    cache.stop()
    report = cache.verify()
    assert (report["corrupt"], report["different"]) == (0, 0)
