"""Whole epochs in separate processes, compared with the files and with DistributedSampler."""

import hashlib
import itertools
import json
import os
import random
import struct

import oracle
import pytest
import realserver
from processes import read_in_processes
from waits import until

EPOCHS = 4

# All combinations of ranks, drop_last and budget. The I/O modes alternate, so that each is combined with each of the others. LCACHE_MATRIX=full: all combinations.
MODES = [("uring", "1"), ("pread", "0"), ("uring", "0"), ("pread", "1")]
CASES = [
    (world, drop_last, part, *mode)
    for (w, world), (d, drop_last), (p, part) in itertools.product(enumerate((1, 2, 8)), enumerate((False, True)), enumerate((None, 0.5, 0.1)))
    for m, mode in enumerate(MODES)
    if m == (w + 2 * d + p) % 4 or os.environ.get("LCACHE_MATRIX") == "full"
]

STATIC = [(2, False, None, "uring", "1", "static"), (8, True, 0.5, "pread", "0", "static")]


@pytest.mark.any_io
def test_the_oracle_is_torch():
    """The implementation of DistributedSampler in oracle.py gives the vectors that were recorded from torch."""
    with open(os.path.join(realserver.ROOT, "testdata", "vectors", "torch.distributed_sampler.json")) as f:
        cases = json.load(f)["cases"]
    compared = 0
    for case in cases:
        p = case["params"]
        if not p["shuffle"] or p.get("semantics") or p.get("batch_size") or p["n"] > 5000:
            continue
        for epoch in case["epochs"]:
            order = oracle.distributed_sampler(p["n"], int(p["seed"]), epoch["epoch"], p["world"], p["rank"], p["drop_last"])
            assert hashlib.sha256(struct.pack(f"<{len(order)}I", *order)).hexdigest() == epoch["sha256"], (p, epoch["epoch"])
            compared += 1
    assert compared >= 6


def digest(cache, epoch):
    """order_digest: the delivered indices, rank by rank."""
    h = hashlib.sha256()
    for rank in range(cache.world):
        order = cache.order(epoch, rank)
        h.update(struct.pack(f"<{len(order)}I", *order))
    return h.hexdigest()


@pytest.mark.any_io  # its cases are all kinds of I/O
@pytest.mark.parametrize("world, drop_last, part, io, direct, layout", [(*c, "log") for c in CASES] + STATIC)
def test_epochs(prepare, reader, tree, monkeypatch, world, drop_last, part, io, direct, layout):
    monkeypatch.setenv("LCACHE_IO", io)
    monkeypatch.setenv("LCACHE_DIRECT", direct)
    # The minimal slack is negligible in a real budget, but not in one of 5 MB.
    budget = int(part * tree.bytes) + (5 << 20) if part else None
    cache = prepare(tree, world=world, drop_last=drop_last, budget=budget, batch_size=13, epochs=EPOCHS, seed=3, extra=["--layout", layout])
    used = [cache.used()]
    cache.start()
    status = cache.status()
    assert (status["io_engine"].startswith("io_uring"), status["direct"]) == (io == "uring", direct == "1")
    readers = [reader(cache) for _ in range(world)]
    assert all([r.ask("ready") for r in readers])
    for epoch in range(EPOCHS):
        assert read_in_processes(readers, epoch, epoch + 1) == sum(len(cache.batches(epoch, r)) for r in range(world))
        used.append(cache.used())
    assert max(used) <= cache.report["budget_bytes"] and (not budget or cache.report["budget_bytes"] <= budget)

    job = until(lambda: (j := cache.job())["epochs_done"][EPOCHS - 1 :] and j, "four finished epochs")
    assert [e["order_digest"] for e in job["epochs_done"]] == [digest(cache, e) for e in range(EPOCHS)]
    assert job["samples_delivered"] == sum(len(cache.order(e, r)) for e in range(EPOCHS) for r in range(world))
    assert [job[k] for k in ("divergences", "corrupt_samples", "stale_samples", "reorder_dropped")] == [0, 0, 0, 0]
    check_hits(cache, job, part)
    for r in readers:
        r.close()


def check_hits(cache, job, part):
    """With a full budget all samples come from the log. With less, as many as fit the budget."""
    report, tree = cache.report, cache.folder
    hits = job["hits"] / (job["hits"] + job["misses"])
    if part is None:
        assert (report["read_bytes"], job["misses"], job["source_bytes"]) == (tree.bytes, 0, 0)
    else:
        largest, empty = max(map(len, tree.contents)), sum(not c for c in tree.contents)
        assert report["stored_bytes"] >= 0.98 * cache.room(report) - largest
        share = (report["stored_samples"] + empty) / len(tree)
        print(f"hits {hits:.3f}, stored samples {share:.3f}, stored bytes {report['stored_bytes'] / tree.bytes:.3f}")
        # Each epoch draws again which samples it leaves out or repeats. A miss may stay in memory until the next epoch, where it is a hit. A sample that was read from the source is never a hit.
        assert hits >= share - 0.01
        assert job["source_reads"] <= job["misses"] + 0.02 * EPOCHS * len(tree)
        # A client close behind the read-ahead may request a sample that is just being read. That is the only exception.
        assert job["source_bytes"] <= 1.02 * EPOCHS * (tree.bytes - report["stored_bytes"]) + EPOCHS * cache.world * largest
    if job["layout"] == "static":
        assert (job["log_write_bytes"], job["evicted_segments"]) == (0, 0)
    elif job["log_read_bytes"] >= EPOCHS * 32 * report["block_bytes"]:
        assert job["log_read_bytes"] / job["log_read_ops"] >= 0.95 * report["block_bytes"]
    assert job["random_reads"] <= job["samples_delivered"] / 10


@pytest.mark.parametrize("drop_last", [False, True])
def test_the_source_is_read_once(serve, reader, small, drop_last):
    """Without prefill only the first epoch reads the source, because samples that an epoch leaves out are kept, too."""
    cache = serve(small, world=7, drop_last=drop_last, batch_size=8, epochs=4, extra=["--no-prefill"])
    assert len(small) % 7, "there must be something to leave out"
    assert (cache.report["read_bytes"], cache.report["stored_bytes"]) == (0, 0)
    readers = [reader(cache) for _ in range(7)]
    read_in_processes(readers, 0, 1)
    until(lambda: cache.job()["source_bytes"] == small.bytes, f"{small.bytes} bytes read from the source")
    read_in_processes(readers, 1, 4)
    job = until(lambda: (j := cache.job())["epochs_done"][3:] and j, "four finished epochs")
    assert job["source_bytes"] == small.bytes
    misses = {e["epoch"]: e["misses"] for e in job["epochs_done"]}
    # The misses in epoch 0 depend on how far the scan was ahead. With so few data, samples may already be in the log again.
    assert misses[2] == misses[3] == 0, misses


@pytest.mark.parametrize("extra", [(), ("--no-prefill",)])
def test_compressed(serve, reader, trees, extra):
    """Text and incompressible bytes: auto chooses lz4, epochs are as exact as without, and fewer bytes are read and written."""
    root = os.path.join(trees, "text")
    draw = random.Random(11)
    if not os.path.exists(root):
        os.makedirs(os.path.join(root, "class0"))
        for i in range(400):
            lines = [json.dumps({"id": draw.randrange(10**6), "text": "sample %d" % draw.randrange(1000)}) for _ in range(draw.randrange(400))]
            with open(os.path.join(root, "class0", f"text{i}.json"), "w") as f:
                f.write("\n".join(lines))
    folder = realserver.Folder(root, [0, 1, 700_000] + [1000] * 40)
    cache = serve(folder, world=2, batch_size=8, epochs=3, extra=["--compress", "auto", *extra])
    assert cache.report["compress"] == "lz4" and 0.2 < cache.report["saves"] < 0.9
    readers = [reader(cache) for _ in range(2)]
    read_in_processes(readers, 0, 3)
    job = until(lambda: (j := cache.job())["epochs_done"][2:] and j, "three finished epochs")
    assert [job[k] for k in ("divergences", "corrupt_samples", "stale_samples", "reorder_dropped")] == [0, 0, 0, 0]
    assert cache.status()["cache"]["compress"] == "lz4"
    if not extra:
        assert (cache.report["read_bytes"], job["misses"]) == (folder.bytes, 0)
        assert cache.report["stored_bytes"] < 0.8 * folder.bytes
    assert 0 < job["log_read_bytes"] < 3 * 0.8 * folder.bytes
    for r in readers:
        r.close()
    cache.stop()
    verified = realserver.lcache_command("verify", "--cache", cache.cache, "--against", folder.root, "--json", "--quiet").json
    assert verified["good"] == len(folder) and verified["corrupt"] == verified["different"] == 0


@pytest.mark.parametrize("change", [{"seed": 5}, {"batch_size": 7}, {"world": 3, "drop_last": True}, {"seed": 2**63 + 11, "epochs": 2}])
def test_another_job_over_the_same_cache(serve, reader, small, change):
    """For other flags the log is reordered. The source is not needed, and the server does not have it."""
    cache = serve(small, world=2, epochs=3)
    old = [reader(cache), reader(cache)]
    read_in_processes(old, 0, 1)
    for r in old:
        r.close()
    cache.stop()
    for name, value in change.items():
        setattr(cache, name, value)
    report = cache.ingest()
    assert (report["read_bytes"], report["read_samples"]) == (0, 0)
    cache.start()
    read_in_processes([reader(cache) for _ in range(cache.world)], 0, cache.epochs)
    job = cache.job()
    assert (job["misses"], job["source_bytes"], job["divergences"]) == (0, 0, 0)


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_another_job_in_the_middle_of_an_epoch(serve, small, part):
    """The old job was stopped while its log was half reordered. Samples in either Logfile are not read from the source again."""
    cache = serve(small, world=2, epochs=3)
    with cache.connect() as job:
        for rank in range(2):
            cache.read(job, 0, rank, stop=int(part * len(cache.batches(0, rank))))
    cache.stop()
    cache.seed = 5
    report = cache.ingest()
    assert (report["read_bytes"], report["read_samples"]) == (0, 0)
    cache.start()
    cache.read_all(epochs=[0])
    assert cache.job()["source_bytes"] == 0


def test_names(serve, reader, tree):
    """Names are the files' paths below the root, with any characters."""
    cache = serve(tree, epochs=1, batch_size=61)
    assert reader(cache).ask("epoch", epoch=0, rank=0, names=True) == len(cache.batches(0, 0))
    with cache.connect() as job:
        assert job.classes == [f"class{i}" for i in range(7)]
        assert (job.samples, job.epochs, job.batch_size) == (len(tree), 1, 61)
