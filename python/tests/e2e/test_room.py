"""Many processes and little memory: every request is answered in time, whatever others hold."""

import logging
import random
import time

import pytest
from realserver import Folder, together

pytestmark = pytest.mark.any_io


@pytest.fixture(scope="module")
def pictures(trees):
    """96 MB in files of 80 KB: a batch of 64 takes a quarter of the memory for requests by index."""
    return Folder(f"{trees}/pictures", [80_000] * 1200)


def answered(began, seconds=20):
    """No request waits longer than a third of its deadline, after which an answer in time would not be certain."""
    took = time.monotonic() - began
    assert took < seconds, f"a request took {took:.1f} s"


def test_readers_and_a_job(serve, pictures):
    """In the first epoch some samples of a request are in the prefetch window, some are being read, and some are missing. The request must not hold the first
    while it waits for the others: otherwise all requests could wait for each other."""
    cache = serve(pictures, batch_size=64, epochs=2, memory="40MiB", extra=["--no-prefill"])

    def worker(k):
        with cache.connect(timeout=25) as job:
            for epoch in range(2):
                for number, indices in enumerate(cache.batches(epoch, 0)):
                    if number % 2 == k:
                        began = time.monotonic()
                        cache.check(job.get(indices, at=(epoch, 0, number)), indices)
                        answered(began)

    def stranger(k):
        draw = random.Random(k)
        with cache.connect(timeout=25) as job:
            for _ in range(20):
                indices = draw.sample(range(len(pictures)), 64)
                began = time.monotonic()
                cache.check(job.get(indices), indices)
                answered(began)

    together((worker, 0), (worker, 1), *((stranger, k) for k in range(8)))
    assert cache.job()["divergences"] == 0


def test_everybody_hoards(serve, pictures, caplog):
    """All clients keep their batches, and request more. Those for which no memory is left get private copies, with one warning each."""
    cache = serve(pictures, batch_size=16, epochs=2, memory="40MiB")
    kept = []
    with caplog.at_level(logging.WARNING, "lcache"):
        jobs = [cache.connect(timeout=25) for _ in range(4)]
        for round in range(8):
            for k, job in enumerate(jobs):
                indices = random.Random(f"{k} {round}").sample(range(len(pictures)), 16)
                began = time.monotonic()
                kept.append((job.get(indices), indices))
                answered(began)
    warned = [record.message for record in caplog.records]
    assert any("hold the server's shared memory" in text for text in warned), warned
    assert len(warned) <= len(jobs)
    for batch, indices in kept:
        cache.check(batch, indices)
    del batch
    kept.clear()
    for job in jobs:
        assert job._link.session.held == 0
        job.close()
