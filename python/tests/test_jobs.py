"""Several jobs on one server: lcache.connect(job=…), lcache.open(job=…)."""

import hashlib
import os
import pickle
import random
import signal
import struct
import subprocess
import sys

import pytest
from realserver import ROOT, Folder, Server, needs_binary

import lcache
from lcache._client import protocol
from lcache._client.environment import launched_run, process_run


@pytest.fixture(scope="module")
def folder(source_dir):
    draw = random.Random(3)
    return Folder(source_dir(), [draw.randrange(20_000) for _ in range(400)])


@pytest.fixture
def server(folder, tmp_path):
    server = Server(folder, tmp_path / "cache", epochs=3)
    server.ingest()
    yield server.start()
    server.stop()


def order_of(seed, samples, count=None):
    indices = list(range(samples))
    random.Random(seed).shuffle(indices)
    indices = indices[:count]
    return [indices[i : i + 16] for i in range(0, len(indices), 16)]


def digest(order):
    return hashlib.sha256(b"".join(struct.pack(f"<{len(batch)}I", *batch) for batch in order)).hexdigest()


def status_of(server, token):
    return next(j for j in server.status()["jobs"] if j["id"] == token)


@needs_binary
def test_jobs_are_separate(server, folder):
    """Each job has its own orders, counters and digests. The source is not read."""
    orders = {"train": order_of(1, len(folder)), "validation": order_of(2, len(folder), 100)}
    jobs = {token: lcache.connect(server.socket, job=token) for token in orders}
    with server.connect() as plain:
        for token, job in jobs.items():
            job.push_order(0, 0, orders[token])
        reading = {token: job.epoch(0) for token, job in jobs.items()}
        for number in range(len(orders["train"])):
            for token, order in orders.items():
                if number < len(order):
                    server.check(next(reading[token]), order[number])
        assert [next(left, None) for left in reading.values()] == [None, None]
        server.check(next(plain.epoch(0)), server.batches(0, 0)[0])
        for token, order in orders.items():
            status = status_of(server, token)
            assert status["samples_delivered"] >= sum(map(len, order))
            assert (status["misses"], status["divergences"], status["pids"]) == (0, 0, [os.getpid()])
            assert [done["order_digest"] for done in status["epochs_done"]] == [digest(order)]
    assert sorted(j["id"] for j in server.status()["jobs"]) == ["", "train", "validation"]
    assert server.job()["source_reads"] == 0
    for job in jobs.values():
        job.close()


@needs_binary
def test_copies_of_a_job_are_the_same_job(server, folder):
    with lcache.connect(server.socket, job="run-7") as job, pickle.loads(pickle.dumps(job)) as copy:
        server.check(job.get([3]), [3])
        server.check(copy.get([4, 5]), [4, 5])
        assert status_of(server, "run-7")["samples_delivered"] == 3
        assert status_of(server, "run-7")["connections"] == 2


@needs_binary
def test_a_job_that_is_killed(server, folder):
    """After a job is killed, the others continue in their order."""
    script = (
        "import lcache, signal, sys\n"
        "job = lcache.connect(sys.argv[1], job='victim')\n"
        "held = [job.get(range(50)), next(job.epoch(0))]\n"
        "print('reading', flush=True)\n"
        "signal.pause()\n"
    )
    env = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "python")}
    victim = subprocess.Popen([sys.executable, "-c", script, server.socket], stdout=subprocess.PIPE, text=True, env=env)
    try:
        assert victim.stdout.readline() == "reading\n"
        order = order_of(5, len(folder))
        with lcache.connect(server.socket, job="other") as job:
            job.push_order(0, 0, order)
            for number, batch in enumerate(job.epoch(0)):
                server.check(batch, order[number])
                if number == 3:
                    victim.send_signal(signal.SIGKILL)
                    victim.wait(30)
            assert number == len(order) - 1
            assert status_of(server, "victim")["connections"] == 0
    finally:
        victim.kill()
        victim.communicate()


def test_an_older_server_is_not_asked(serve, path):
    server = serve(features=["report"])
    with lcache.connect(path, timeout=10, job="a") as job:
        assert list(job.get([1, 2]).indices) == [1, 2]
        assert protocol.JOB not in [kind for kind, _ in server.requests]


@pytest.mark.parametrize("token", ["", "x" * 129, 7])
def test_tokens_are_checked(path, token):
    with pytest.raises(lcache.ArgumentError, match="job="):
        lcache.connect(path, job=token)


@pytest.mark.parametrize("answer", [b"{}", b'{"job": 0}', b'{"job": 65536}', b'{"job": "1"}', b"[]", b"\xff"])
def test_answers_are_checked(answer):
    with pytest.raises(lcache.ProtocolError):
        protocol.read_job(answer)
    assert protocol.read_job(b'{"job": 65535}') == 65535


def test_requests_without_a_job():
    """Requests that belong to a job have its number in their flags, and no others do."""
    flags = {kind: protocol.HEADER.unpack_from(protocol.frame(kind, 1, job=3))[3] for kind in range(1, 17)}
    assert {kind for kind, said in flags.items() if said} == {2, 3, 5, 10, 12} and set(flags.values()) == {0, 3}


TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "node1", "MASTER_PORT": "29500"}
SLURM = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "3"}


@pytest.mark.parametrize(
    "env, several, run",
    [
        ({}, False, None),
        ({**TORCHRUN, "TORCHELASTIC_RUN_ID": "night"}, False, "night"),
        ({**TORCHRUN, "TORCHELASTIC_RUN_ID": "none"}, False, "node1:29500"),
        ({**TORCHRUN, "TORCHELASTIC_RUN_ID": "static", "WORLD_SIZE": "1"}, False, "node1:29500"),
        ({**TORCHRUN, "TORCHELASTIC_RUN_ID": "none", **SLURM}, False, "node1:29500"),
        ({"TORCHELASTIC_RUN_ID": "night", **SLURM}, False, "night"),
        (SLURM, False, "slurm-77.3"),
        ({**SLURM, "SLURM_STEP_ID": ""}, False, None),  # the batch script itself: it may start several programs
        ({**SLURM, "SLURM_JOB_NAME": "bash"}, False, None),
        ({**TORCHRUN, **SLURM}, False, "slurm-77.3"),
        (TORCHRUN, False, "node1:29500"),  # a launcher that gives no id, such as Lightning's
        ({**TORCHRUN, "WORLD_SIZE": "1"}, False, None),
        ({"MASTER_ADDR": "node1", "MASTER_PORT": "29500"}, False, None),
        ({"MASTER_ADDR": "node1", "MASTER_PORT": "29500"}, True, "node1:29500"),
        ({"MASTER_ADDR": "node1"}, True, None),
    ],
)
def test_runs(env, several, run):
    assert launched_run(env, several) == run


def test_processes():
    """A process has one id, which never changes, and which no other process has."""
    mine = process_run()
    assert mine == process_run() and mine.startswith(f"pid-{os.getpid()}-")
    env = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "python")}
    code = "from lcache._client.environment import process_run; print(process_run())"
    theirs = {subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True).stdout.strip() for _ in range(2)}
    assert len({run.split("-")[2] for run in (mine, *theirs)}) == 3
