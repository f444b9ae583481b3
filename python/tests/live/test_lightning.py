"""Lightning and Fabric on two processes: both insert a DistributedSampler."""

import importlib.util
import os
import subprocess
import sys

import pytest

from harness import Check

WORLD = 2


def test_lightning(tmp_path):
    if importlib.util.find_spec("lightning") is None:
        pytest.skip("lightning is not installed")
    with Check("Lightning and Fabric, two processes", share=0) as check:
        n, seed, shuffle = check.rng.randrange(1, 60), check.rng.getrandbits(32), check.rng.random() < 0.5
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lightning_run.py")
        cmd = [sys.executable, script, str(tmp_path), str(n), "4", str(seed), str(shuffle).lower()]
        try:
            done = subprocess.run(cmd, capture_output=True, text=True, timeout=40)
        except subprocess.TimeoutExpired:
            pytest.skip("two processes of lightning did not find each other in 40 s")
        if done.returncode != 0:
            pytest.skip(f"two processes of lightning do not run here: {done.stderr.strip()[-300:]}")
        for kind in ("trainer", "fabric"):
            for epoch in range(2):
                for rank in range(WORLD):
                    want = (tmp_path / f"{kind}-{epoch}-{rank}").read_text().split()
                    # The Trainer always shuffles. Fabric shuffles if the loader does.
                    check.same(want, "torch.distributed_sampler", n=n, seed=seed, world=WORLD, rank=rank, epoch=epoch, shuffle=shuffle or kind == "trainer")
