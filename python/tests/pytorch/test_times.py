"""The status has the times that only the training process knows, and the verdicts follow from them. Each test makes one stage slow."""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest
import realserver
from embedded_servers import folder, root  # noqa: F401

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)

import lcache.torch as lt  # noqa: E402

SIZE, EPOCHS = 30, 3
DECODE, LOOP = 0.004, 0.2  # seconds a sample, seconds a batch
TIMED = bool(os.environ.get("LCACHE_IDLE"))  # asserts shares of time, and the verdicts: make test-faults PARTS=times does so on an idle machine


def quick(_, sample):
    return sample.index


def slow(_, sample):
    time.sleep(DECODE)  # stands for decoding that takes this long
    return sample.index


def train(dataset, loop, workers):
    loader = lt.DataLoader(dataset, SIZE, shuffle=True, seed=1, num_workers=workers, persistent_workers=workers > 0)
    for _ in range(EPOCHS):
        for _ in loader:
            time.sleep(loop)  # stands for a training step that takes this long


def check_slow_loop(status):
    wait, loop = status["loop_wait_seconds"], status["loop_seconds"]
    # The loop's time for the last batch of an epoch is known when it requests one more.
    assert loop >= LOOP * EPOCHS * (status["samples"] // SIZE) and wait > 0
    assert [rank["loop_wait_seconds"] for rank in status["ranks"]] == [wait]
    epochs = [e["loop_wait_seconds"] for e in status["epochs_done"]]
    assert len(epochs) == EPOCHS and None not in epochs and sum(epochs) == pytest.approx(wait)
    assert status["loop_workers"] == 1
    if TIMED:
        assert wait < loop and status["bound_by"] == "consumer"


def check_slow_decode(status, workers):
    least = DECODE * status["samples"] * EPOCHS
    assert status["decode_seconds"] >= least - 0.05 * EPOCHS * max(workers, 1), "more is missing than a process may keep to itself"
    assert status["loop_wait_seconds"] > 0 and status["loop_workers"] == workers
    if TIMED:
        assert status["loop_wait_seconds"] >= 0.8 * least / max(workers, 1) and status["bound_by"] == "decode"


def test_decode_in_the_loop(folder, root):
    ours = lt.Dataset(folder.root, slow, cache=root)
    status = ours.job.stats()["jobs"][0]
    assert [status[name] for name in ("loop_wait_seconds", "loop_seconds", "decode_seconds")] == [None, None, None]
    train(ours, 0, 0)
    check_slow_decode(ours.job.stats()["jobs"][0], 0)


TRAINER = """
import sys
from test_times import LOOP, lt, quick, slow, train
train(lt.Dataset(socket=sys.argv[1], decode=quick), LOOP, 1)
train(lt.Dataset(socket=sys.argv[2], decode=slow), 0, 2)
"""


def test_verdicts_of_run(folder, root, tmp_path):
    other = shutil.copytree(folder.root, tmp_path / "other")
    command = [realserver.BINARY, "run", "--json", "--source", f"busy={folder.root}", "--source", f"slow={other}", "--cache", root, "--",
               "/bin/sh", "-c", 'exec "$0" -c "$1" "$LCACHE_SOCKET_BUSY" "$LCACHE_SOCKET_SLOW"', sys.executable, TRAINER]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    busy, slow = json.loads(done.stdout)["sources"]
    check_slow_loop(busy["status"]["jobs"][0])
    check_slow_decode(slow["status"]["jobs"][0], 2)
    if TIMED:
        assert busy["verdict"]["stage"] == "loop" and "lcache cannot make this faster" in busy["verdict"]["bound"]
        assert slow["verdict"]["stage"] == "decode" and "decode takes" in slow["verdict"]["change"]
