"""Realistic datasets: samples of several files, labels in a table, sources that change. With real servers; every byte is compared with the files."""

import contextlib
import json
import os
import random
import subprocess

import pytest
from realserver import BINARY, lcache_command, needs_binary

import lcache

pytestmark = needs_binary
EXTS = ("", "cls", "jpg", "json", "seg.png", "\udcff\n")


@pytest.fixture
def groups(tmp_path):
    """(root, {sample: {extension: bytes}}): 200 samples of 1 to 6 files, some of them empty, with awkward names."""
    draw = random.Random(5)
    root, wanted = tmp_path / "groups", {}
    for i in range(200):
        stem = f"class{i % 3}/" + ("sub dir/" if i % 7 == 0 else "") + f"{i:04d}" + ("\n-é" if i % 11 == 0 else "")
        os.makedirs(root / os.path.dirname(stem), exist_ok=True)
        exts = draw.sample(EXTS, draw.randrange(1, len(EXTS) + 1))
        wanted[stem] = {ext: draw.randbytes(draw.choice((0, 1, 5000, 40_000))) for ext in sorted(exts)}
        for ext, data in wanted[stem].items():
            with open(root / (stem + (f".{ext}" if ext else "")), "wb") as f:
                f.write(data)
    return str(root), wanted


def check_parts(batch, wanted):
    for i, (name, parts) in enumerate(zip(batch.names, batch.parts)):
        assert {ext: bytes(view) for ext, view in parts.items()} == wanted[name]
        assert list(parts) == sorted(wanted[name])
        assert bytes(batch.samples[i]) == next(iter(wanted[name].values()))
    return list(batch.names)


def test_parts(groups, tmp_path, started):
    root, wanted = groups
    cache = str(tmp_path / "cache")
    job = ["--recipe", "torch.distributed_sampler", "--epochs", "3", "--batch-size", "16"]
    made = ingest(root, cache, "--group", "stem", *job)
    assert (made["samples"], made["bytes"]) == (200, sum(len(d) for parts in wanted.values() for d in parts.values()))
    with started(cache) as job:
        for epoch in range(3):
            seen = [name for batch in job.epoch(epoch) for name in check_parts(batch, wanted)]
            assert sorted(seen) == sorted(wanted)
        assert check_parts(job.get(range(200)), wanted) == sorted(wanted, key=lambda name: order(name, wanted))
        status = job.stats()["jobs"][0]
        assert (status["misses"], status["source_bytes"], status["corrupt_samples"]) == (0, 0, 0)
    # If a part changes, its sample is read again, and no other.
    name = sorted(wanted)[5]
    ext = next(iter(wanted[name]))
    wanted[name][ext] = b"another"
    with open(os.path.join(root, name + (f".{ext}" if ext else "")), "wb") as f:
        f.write(wanted[name][ext])
    again = ingest(root, cache, "--group", "stem", "--relist")
    assert (again["changed_samples"], again["added_samples"], again["read_bytes"]) == (1, 0, sum(map(len, wanted[name].values())))
    with started(cache) as job:
        check_parts(job.get(range(200)), wanted)


def order(name, wanted):
    """The order is ImageFolder's for the files of first parts: class, folder, name."""
    ext = next(iter(wanted[name]))
    folder, file = os.path.split(name + (f".{ext}" if ext else ""))
    return name.split("/")[0], folder, file


def test_labels_of_groups(groups, tmp_path, started):
    root, wanted = groups
    table = tmp_path / "labels.csv"
    with open(table, "w", encoding="utf-8", errors="surrogateescape", newline="") as f:
        f.writelines(f'"{name}",{len(parts)}\n' for name, parts in wanted.items())
    cache = str(tmp_path / "cache")
    ingest(root, cache, "--group", "stem", "--labels", str(table))
    with started(cache) as job:
        batch = job.get(range(200))
        assert list(batch.labels) == [len(wanted[name]) for name in batch.names]


def test_a_source_that_changes(tmp_path, started):
    """After files were added, removed and changed, only new contents are read. Without a change nothing is read."""
    draw = random.Random(6)
    root, cache = tmp_path / "data", str(tmp_path / "cache")
    wanted = {}

    def write(name):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        wanted[name] = draw.randbytes(draw.randrange(1, 30_000))
        path.write_bytes(wanted[name])
        return len(wanted[name])

    for i in range(600):
        write(f"class{i % 4}/{i:04d}")
    job = ["--recipe", "torch.distributed_sampler", "--epochs", "2", "--batch-size", "16"]
    ingest(root, cache, *job)
    assert ingest(root, cache, *job)["read_bytes"] == 0
    for step in range(3):
        names = sorted(wanted)
        gone, edited = draw.sample(names, 7), []
        for name in gone:
            del wanted[name]
            (root / name).unlink()
        edited = draw.sample(sorted(wanted), 5)
        new = sum(map(write, edited)) + sum(write(f"class{i % 5}/new-{step}-{i}") for i in range(11))
        made = ingest(root, cache, "--relist", *job)
        assert (made["added_samples"], made["removed_samples"], made["changed_samples"]) == (11, 7, 5)
        assert made["read_bytes"] == new and not made["anew"]
        with started(cache) as job_:
            seen = {}
            for batch in job_.epoch(0):
                seen.update(zip(batch.names, (bytes(view) for view in batch.samples)))
            assert seen == wanted
            status = job_.stats()["jobs"][0]
            assert (status["misses"], status["source_bytes"], status["corrupt_samples"]) == (0, 0, 0)
        assert ingest(root, cache, *job)["read_bytes"] == 0


def ingest(root, cache, *flags):
    return json.loads(lcache_command("ingest", "--source", str(root), "--cache", cache, "--json", *flags).stdout)


@pytest.fixture
def started():
    """started(cache): a server of that cache and a job of it, until the with block ends."""
    @contextlib.contextmanager
    def run(cache):
        server = subprocess.Popen([BINARY, "serve", "--cache", cache, "--json"], stdout=subprocess.PIPE)
        try:
            assert server.stdout.readline()
            with lcache.connect(os.path.join(cache, "lcache.sock")) as job:
                yield job
        finally:
            server.terminate()
            assert server.wait(30) == 0
            server.stdout.close()

    return run
