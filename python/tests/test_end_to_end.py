"""Commands as users run them. e2e/ tests the servers that they start."""

import argparse
import json
import os
import random
import signal
import subprocess
import sys

import pytest
from realserver import ROOT, Folder, Server, lcache_command, needs_binary

import demo_reader  # from a folder that realserver adds to the path
import lcache

pytestmark = needs_binary

BLOCK = 256 << 10


@pytest.fixture(scope="module")
def small(source_dir):
    """12 MB, for tests that are not about throughput."""
    draw = random.Random(8)
    return Folder(source_dir(), [0, 1, 3 * BLOCK] + [draw.randrange(40_000) for _ in range(600)])


@pytest.fixture
def serve(tmp_path):
    """serve(folder, …) ingests and starts a server. All servers are stopped at the end, and must exit cleanly."""
    started = []

    def start(folder, **job):
        server = Server(folder, tmp_path / f"cache{len(started)}", **job)
        server.report = server.ingest()
        started.append(server)
        return server.start()

    yield start
    for server in started:
        server.stop()


def test_source_may_be_gone(serve, source_dir):
    """If the log has all samples, the source is not needed: only the log is read."""
    folder = Folder(source_dir(), [1000] * 300)
    server = serve(folder, world=2, epochs=3)
    for path, _ in folder.files:
        os.remove(path)
    server.read_all()
    assert server.job()["misses"] == 0


@pytest.mark.parametrize("policy", [None, "skip"])
def test_a_sample_that_cannot_be_read(serve, source_dir, policy):
    """A sample that can't be read ends its request with an error that names it, or is left out of its batch and counted."""
    folder = Folder(source_dir(), [5000] * 64)
    server = serve(folder, extra=["--no-prefill"], on_error=policy)
    path, _ = folder.files[20]
    os.remove(path)
    name = os.path.relpath(path, folder.root)
    with server.connect() as job:
        assert job.on_error == (policy or "fail")
        if policy is None:
            with pytest.raises(lcache.SampleError, match=name) as caught:
                job.get([3, 20, 7])
            assert caught.value.sample == name
            assert server.job()["skipped_samples"] == 0
            return
        server.check(job.get([20, 3, 20, 7, 3]), [3, 7, 3])
        server.check(job.get([20]), [])
        for batch, order in zip(job.epoch(0), server.batches(0, 0)):
            server.check(batch, [i for i in order if i != 20])
    assert server.job()["skipped_samples"] == 4


@pytest.mark.any_io
def test_torch_refuses_a_server_that_skips(serve, small):
    """A map-style dataset must return as many samples as were requested."""
    pytest.importorskip("torch")
    from lcache.torch import Dataset

    server = serve(small, on_error="skip")
    with pytest.raises(lcache.Error, match=r'give on_error="fail" \(for lcache serve: --on-error fail\)'):
        Dataset(socket=server.socket)


def test_verify_agrees(serve, small):
    server = serve(small, epochs=2)
    server.read_all()
    server.stop()
    report = lcache_command("verify", "--cache", server.cache, "--against", small.root, "--json", "--quiet").json
    assert (report["samples"], report["corrupt"], report["different"]) == (len(small), 0, 0)


@pytest.mark.any_io
def test_demo(tmp_path):
    """lcache demo on a few files: it ends with 0, cleans up, and its figures add up."""
    folder = Folder(tmp_path / "data", [20_000] * 1000, classes=4)
    done = lcache_command("demo", "--source", folder.root, "--dir", tmp_path, "--client", os.path.join(ROOT, "python"),
                          "--python", sys.executable, "--epochs", 2, "--json", "--quiet")
    assert [e["samples"] for e in done.json["full"]["epochs"]] == [1000, 1000]
    assert done.json["full"]["wrongs"] == done.json["half"]["wrongs"] == 0
    readings = done.json["plain_files"]["readings"]
    assert [r["how"] for r in readings] == ["cold files", "cold files", *["files"] * done.json["plain_files"]["fits_in_memory"], "lcache"]
    assert all(r["samples"] == 1000 * r["epochs"] and r["bytes"] == 20_000 * r["samples"] for r in readings) and not done.json["plain_files"]["wrong"]
    assert os.listdir(tmp_path) == ["data"]


@pytest.mark.any_io
def test_demo_reads_files_in_memory(serve, small, monkeypatch):
    """On a slow disk, demo stops its cold read early. Its read of files in memory stops at the same file, because the rest is not in memory."""
    server = serve(small, epochs=2)
    rank = demo_reader.Rank(argparse.Namespace(socket=server.socket, source=small.root, seed=0, rank=0, world=1, batch_size=server.batch_size, ext=""))
    monkeypatch.setattr(demo_reader, "READ_SECONDS", 0)
    cold = rank.timed("cold files", [0, 1], 1)
    monkeypatch.setattr(demo_reader, "READ_SECONDS", 60)
    warm = rank.timed("files", [0, 1], 1)
    assert cold["samples"] == warm["samples"] == server.batch_size
    assert cold["crcs"] == warm["crcs"] == rank.timed("lcache", [0, 1], 1)["crcs"][:1]
    rank.job.close()


def test_second_signal_is_not_needed(serve, small):
    """SIGINT stops a server as SIGTERM does, even if clients are connected."""
    server = serve(small, epochs=1)
    with server.connect() as job:
        next(job.epoch(0))
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(timeout=60) == 0
        server.process.communicate()
        server.process = None


def test_progress_lines_are_json(small, tmp_path):
    done = subprocess.run([os.environ.get("LCACHE_BIN", os.path.join(ROOT, "bin", "lcache")), "ingest", "--source", small.root, "--cache", str(tmp_path / "c"),
                           "--progress", "json"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    for line in done.stderr.splitlines():
        assert line.startswith("default") or json.loads(line)["schema"] == 1
