"""The whole of lcache, as its users run it: files, ingest, a server process, this client. Every byte, label and index is checked."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
from realserver import ROOT, Folder, Server, lcache_command, needs_binary, together

import lcache

pytestmark = needs_binary

BLOCK = 256 << 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """100 MB with everything that is awkward: nothing, one byte, a block and its neighbours, several blocks."""
    draw = random.Random(7)
    sizes = [0, 0, 1, 63, 64, 65, 4095, 4096, 4097, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 5, 3 * BLOCK]
    sizes += [min(int(draw.lognormvariate(10.5, 0.9)), 3 * BLOCK) for _ in range(1987)]
    return Folder(tmp_path_factory.mktemp("data"), sizes)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """12 MB, for what is not about throughput."""
    draw = random.Random(8)
    return Folder(tmp_path_factory.mktemp("small"), [0, 1, 3 * BLOCK] + [draw.randrange(40_000) for _ in range(600)])


@pytest.fixture
def serve(tmp_path):
    """serve(folder, …): ingests and starts; all that were started are stopped, cleanly, at the end."""
    started = []

    def start(folder, **job):
        server = Server(folder, tmp_path / f"cache{len(started)}", **job)
        server.report = server.ingest()
        started.append(server)
        return server.start()

    yield start
    for server in started:
        server.stop()


CASES = [
    # world, drop_last, part of the dataset that the budget is
    (1, False, None),
    (2, False, None),
    (8, True, None),
    (2, True, 0.5),
    (8, False, 0.5),
    (1, True, 0.1),
]


@pytest.mark.parametrize("world, drop_last, part", CASES)
def test_epochs_are_exact(serve, folder, world, drop_last, part):
    budget = int(folder.bytes * part) if part else None
    server = serve(folder, world=world, drop_last=drop_last, budget=budget)
    server.read_all()
    job, report = server.job(), server.report
    assert job["divergences"] == 0 and job["corrupt_samples"] == 0 and job["reorder_dropped"] == 0
    if part is None:
        assert (job["misses"], job["source_bytes"]) == (0, 0)
        assert report["read_bytes"] == folder.bytes  # once, at ingest
    else:
        room = budget - report["slack_bytes"] - report["metadata_bytes"]
        assert report["stored_bytes"] >= 0.98 * room - 3 * BLOCK  # the first sample that does not fit ends the set
        hits = job["hits"] / (job["hits"] + job["misses"])
        assert hits >= report["stored_samples"] / len(folder) - 0.01  # what drop_last leaves out may be in the log
        missing = server.epochs * (folder.bytes - report["stored_bytes"])
        assert job["source_bytes"] <= 1.02 * missing, "misses are read more than once"
        assert server.used() <= budget
    assert server.used() <= report["budget_bytes"]
    # Tails and buffers apart, which never leave memory, each epoch is read from the log in whole blocks.
    mean = job["log_read_bytes"] / job["log_read_ops"]
    assert mean >= 0.95 * report["block_bytes"]
    assert [e["epoch"] for e in job["epochs_done"]] == list(range(3)) or [e["epoch"] for e in job["epochs_done"]] == list(range(4))


def test_source_may_be_gone(serve, tmp_path):
    """With everything in the log the source is not needed: nothing but the log is read."""
    folder = Folder(tmp_path / "data", [1000] * 300)
    server = serve(folder, world=2, epochs=3)
    for path, _ in folder.files:
        os.remove(path)
    server.read_all()
    assert server.job()["misses"] == 0


def test_kill_and_restart(serve, small):
    """kill -9 at random points of all epochs: the server comes back, the client goes on in the same order, every byte right."""
    server = serve(small, world=2)
    seed = random.randrange(1 << 30)
    print("seed", seed)
    draw = random.Random(seed)
    done = threading.Event()

    def killer():
        for _ in range(4):
            if done.wait(draw.uniform(0.05, 0.4)):
                return
            server.kill()
            server.start()

    def reader(rank, ends):
        try:
            with server.connect() as job:
                for epoch in range(server.epochs):
                    for number, batch in enumerate(job.epoch(epoch, rank=rank)):
                        server.check(batch, server.batches(epoch, rank)[number])
                        time.sleep(0.004)  # long enough for some of the kills to come in the middle
        finally:
            ends.append(rank)
            if len(ends) == server.world:
                done.set()

    ends = []
    together((killer,), (reader, 0, ends), (reader, 1, ends))
    assert server.job()["corrupt_samples"] == 0


@pytest.mark.parametrize("change", [{"seed": 5}, {"batch_size": 7}, {"world": 4}])
def test_another_job_over_the_same_cache(serve, small, change):
    """Another order sorts the log anew. The source is not read."""
    server = serve(small, world=2, epochs=2)
    server.read_all(epochs=[0])
    server.stop()
    for name, value in change.items():
        setattr(server, name, value)
    report = server.ingest()
    assert report["read_bytes"] == 0
    server.start()
    server.read_all()
    job = server.job()
    assert (job["misses"], job["source_bytes"], job["divergences"]) == (0, 0, 0)


def test_ranks_one_after_the_other(serve, small):
    server = serve(small, world=3, epochs=2)
    with server.connect() as job:
        for epoch in range(2):
            for rank in range(3):
                server.read(job, epoch, rank)


def test_a_rank_that_never_comes(serve, small):
    server = serve(small, world=3, epochs=3)
    server.read_all(ranks=[0, 2])


def test_any_indices_at_any_time(serve, small):
    server = serve(small, world=2, epochs=2)
    draw = random.Random(3)
    with server.connect() as job:
        expected = server.batches(0, 0)
        for number, batch in enumerate(job.epoch(0, rank=0)):
            server.check(batch, expected[number])
            indices = [draw.randrange(len(small)) for _ in range(draw.randrange(1, 9))]
            server.check(job.get(indices), indices)
        server.check(job.get(expected[2], at=(0, 0, 2)), expected[2])


def test_break_and_resume(serve, small):
    server = serve(small, epochs=3)
    with server.connect() as job:
        server.read(job, 0, 0, stop=5)
        server.read(job, 0, 0, start=5)
        server.read(job, 1, 0, start=20)
        server.read(job, 2, 0)


def test_epochs_out_of_turn(serve, small):
    """Forward over one, back again, the same once more, far ahead."""
    server = serve(small, epochs=40)
    with server.connect() as job:
        for epoch in (0, 2, 1, 2, 2, 39, 0):
            server.read(job, epoch, 0, stop=12)
        server.read(job, 3, 0)
        server.read(job, 4, 0)


def test_views_outlive_everything(serve, small):
    numpy = pytest.importorskip("numpy")
    server = serve(small, epochs=1, batch_size=8)
    kept = []
    with server.connect() as job:
        for number, batch in enumerate(job.epoch(0)):
            if number % 20 == 0:
                kept += [(i, numpy.frombuffer(s, dtype=numpy.uint8)) for i, s in zip(batch.indices, batch.samples) if len(s)]
    assert len(kept) > 20
    for index, array in kept:
        assert array.tobytes() == small.contents[index]


def test_client_that_hoards(serve, small):
    """Batches that are kept until the end stay as they were, and others are still served."""
    server = serve(small, world=2, epochs=1)
    with server.connect() as hoarder, server.connect() as other:
        kept = list(hoarder.epoch(0, rank=0))
        server.read(other, 0, 1)
        for batch, indices in zip(kept, server.batches(0, 0)):
            server.check(batch, indices)


def test_an_order_of_ones_own(serve, small):
    server = serve(small, epochs=2)
    mine = list(range(len(small)))[::-1]
    with server.connect() as job:
        job.push_order(1, 0, mine)
        server.read(job, 0, 0)
        seen = []
        for batch in job.epoch(1):
            server.check(batch, list(batch.indices))
            seen += batch.indices
    assert seen == mine


def test_forked_child(serve, small):
    server = serve(small, epochs=1)
    with server.connect() as job:
        batches = job.epoch(0)
        first = next(batches)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                indices = [3, 1, 2]
                server.check(job.get(indices), indices)  # a session of its own
                try:
                    bytes(first.samples[0])
                except lcache.Error:
                    code = 0
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        server.check(first, server.batches(0, 0)[0])
        for number, batch in enumerate(batches, 1):
            server.check(batch, server.batches(0, 0)[number])


def test_clean_stop_keeps_everything(serve, small):
    """Stopped in the middle of an epoch and started again: no sample has to come from the source."""
    server = serve(small, epochs=3)
    with server.connect() as job:
        server.read(job, 0, 0, stop=9)
    server.stop()
    server.start()
    with server.connect() as job:
        server.read(job, 0, 0, start=9)
        server.read(job, 1, 0)
        server.read(job, 2, 0)
    assert server.job()["source_bytes"] == 0


def test_without_prefill(serve, small):
    """The first epoch reads the source, each sample once, and fills the log."""
    server = serve(small, world=2, extra=["--no-prefill"])
    assert server.report["read_bytes"] == 0
    server.read_all()
    assert server.job()["source_bytes"] == small.bytes


@pytest.mark.parametrize("policy", [None, "skip"])
def test_a_sample_that_cannot_be_read(serve, tmp_path, policy):
    """It ends its request with an error that names it, or is left out of its batch and counted."""
    folder = Folder(tmp_path / "data", [5000] * 64)
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


def test_torch_refuses_a_server_that_skips(serve, small):
    """A map-style dataset owes as many samples as it was asked for."""
    pytest.importorskip("torch")
    from lcache.torch import Dataset

    server = serve(small, on_error="skip")
    with pytest.raises(lcache.Error, match="--on-error fail"):
        Dataset(socket=server.socket)


def test_status_names_everything(serve, small):
    """The document has all names of the contract."""
    server = serve(small, epochs=1)
    server.read_all()
    status = server.status()
    top = "schema version pid uptime_seconds io_engine direct page_bytes memory_bytes memory_limit_bytes cache jobs"
    job = """name source samples dataset_bytes recipe seed epochs epoch layout layout_reason chunks_delivered samples_delivered bytes_delivered
        hits misses source_bytes source_reads source_retries log_read_bytes log_read_ops log_write_bytes log_write_ops random_reads
        reorder_dropped evicted_segments draining stall_seconds consumer_wait_seconds loop_wait_seconds loop_seconds decode_seconds
        ready_batches corrupt_samples stale_samples divergences first_divergence ranks bound_by epochs_done"""
    assert set(top.split()) <= set(status)
    assert {"dirs", "budget_bytes", "used_bytes", "state"} <= set(status["cache"])
    assert set(job.split()) <= set(status["jobs"][0])
    assert {"rank", "pid", "position", "loop_wait_seconds", "leased_bytes"} <= set(status["jobs"][0]["ranks"][0])
    with server.connect() as connected:
        assert connected.stats()["jobs"][0]["samples_delivered"] == len(small)


def test_verify_agrees(serve, small):
    server = serve(small, epochs=2)
    server.read_all()
    server.stop()
    report = lcache_command("verify", "--cache", server.cache, "--against", small.root, "--json", "--quiet").json
    assert (report["samples"], report["corrupt"], report["different"]) == (len(small), 0, 0)


def test_demo(tmp_path):
    """lcache demo on a few files: it ends with 0, cleans up, and its figures add up."""
    folder = Folder(tmp_path / "data", [20_000] * 1000, classes=4)
    done = lcache_command("demo", "--source", folder.root, "--dir", tmp_path, "--client", os.path.join(ROOT, "python"),
                          "--python", sys.executable, "--epochs", 2, "--json", "--quiet")
    assert [e["samples"] for e in done.json["full"]["epochs"]] == [1000, 1000]
    assert done.json["full"]["wrongs"] == done.json["half"]["wrongs"] == 0
    assert os.listdir(tmp_path) == ["data"]


def test_second_signal_is_not_needed(serve, small):
    """SIGINT stops as SIGTERM does, with clients connected."""
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
