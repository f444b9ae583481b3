"""The bottleneck that `lcache run` reports, with real servers and clients. Each test makes one stage slow."""

import json
import os
import re
import subprocess
import sys

import pytest
import realserver

pytestmark = pytest.mark.skipif(not os.environ.get("LCACHE_IDLE"), reason="verdicts follow from shares of time: make test-faults PARTS=times, on a machine that does nothing else")

IN_ORDER = """
import lcache
with lcache.connect() as job:
    for epoch in range(job.epochs):
        for batch in job.epoch(epoch):
            pass
"""

# Reads the same samples in another order than the job's, at the job's positions. No batch is ready, so each request waits.
IN_ANOTHER_ORDER = """
import lcache, random
with lcache.connect() as job:
    for epoch in range(job.epochs):
        order = list(range(job.samples))
        random.Random(epoch).shuffle(order)
        for n in range(0, job.samples, 16):
            job.get(order[n : n + 16], at=(epoch, 0, n // 16))
"""

JOB = ["--recipe", "torch.distributed_sampler", "--seed", "0", "--batch-size", "16"]


@pytest.fixture
def run(small, disk):
    """run(program, flags…) returns the verdict of one run. All runs share a root of caches."""

    def start(program, *flags):
        env = realserver.environment(PYTHONPATH=os.path.join(realserver.ROOT, "python"), XDG_RUNTIME_DIR=disk, LCACHE_TMPFS="1")
        command = [realserver.BINARY, "run", "--source", small.root, "--cache", os.path.join(disk, "root"), *JOB, *flags, "--json", "--", sys.executable, "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["sources"][0]["verdict"]

    return start


def facts(disk, rate):
    path = os.path.join(disk, "facts.json")
    device = dict.fromkeys(("read_bytes_per_second", "write_bytes_per_second", "both_read_bytes_per_second", "both_write_bytes_per_second"), rate)
    with open(path, "w") as f:
        json.dump({"schema": 1, "facts": {"places": [{"dir": disk, "block_device": "imaginary", "device": device}]}}, f)
    return path


def test_source(run):
    """The first epoch reads the source. A job of one epoch has no other."""
    verdict = run(IN_ORDER, "--epochs", "1")
    assert (verdict["stage"], verdict["change"]) == ("source", "nothing")
    assert verdict["bound"].startswith("by the source, which a job of one epoch reads once: ")


def test_budget(run, small):
    """The log has a part of the dataset. The verdict says which part, and the budget that all of it needs. With that budget, the budget is not the bottleneck."""
    verdict = run(IN_ANOTHER_ORDER, "--epochs", "4", "--budget", str(small.bytes // 4 + (10 << 20)))
    assert verdict["stage"] == "budget"
    kept = float(re.search(r"\(c = (0\.\d\d)\)", verdict["bound"]).group(1))
    assert 0 < kept < 1
    needed = re.fullmatch(r"give --budget (\S+) or more: all of it then comes from the disk", verdict["change"]).group(1)
    assert run(IN_ANOTHER_ORDER, "--epochs", "4", "--budget", needed)["stage"] not in ("budget", "unknown")


def test_order(run):
    """The log has all samples, but they are requested in another order. The verdict has the first position that differs, and the flag to give."""
    run(IN_ORDER, "--epochs", "12")  # fills the log
    verdict = run(IN_ANOTHER_ORDER, "--epochs", "4")
    assert verdict["stage"] == "order"
    assert re.search(r"requests asked for another one than planned, first at epoch 0 rank 0 batch 0 sample \d+$", verdict["bound"])
    assert verdict["change"].startswith("give the recipe, seed, batch size and world size of the training")


def test_disk(run, disk):
    """The disk is the bottleneck if the log is read at its measured speed. With a faster disk, or none measured, the verdict does not say so."""
    run(IN_ORDER, "--epochs", "12")
    verdict = run(IN_ORDER, "--epochs", "6", "--facts", facts(disk, 1000.0))
    assert (verdict["stage"], verdict["change"].split(",")[0]) == ("disk", "a faster disk")
    assert "of the 1 kB/s that it was measured to give" in verdict["bound"]
    verdict = run(IN_ORDER, "--epochs", "6", "--facts", facts(disk, 1e15))
    assert verdict["stage"] == "unknown" and verdict["change"].startswith("send the output of lcache doctor")
    verdict = run(IN_ORDER, "--epochs", "6")
    assert verdict["stage"] == "unknown" and verdict["change"].startswith("measure it, lcache doctor")
