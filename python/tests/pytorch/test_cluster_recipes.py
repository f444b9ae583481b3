"""The recipes of examples/cluster for launchers that can run here: three "machines" are three groups of processes on 127.0.0.2 to 127.0.0.4."""

import os
import re
import shutil
import socket
import subprocess
import sys

import pytest
import realserver
from embedded_servers import folder, root, servers  # noqa: F401
from waits import wait_for_end

RECIPES = os.path.join(realserver.ROOT, "examples", "cluster")
HERE = os.path.dirname(os.path.abspath(__file__))


def free_port(host):
    with socket.socket() as s:
        s.bind((host, 0))
        return s.getsockname()[1]


class Machines:
    """Several machines on the loopback interface: each has a home, a folder for sockets and a cache of its own."""

    def __init__(self, folder, count):
        self.folder = str(folder)
        self.hosts = [f"127.0.0.{2 + k}" for k in range(count)]
        self.key = os.path.join(self.folder, "key")
        with open(os.open(self.key, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
            f.write(realserver.lcache_command("cluster", "key").stdout)

    def environment(self, number, **more):
        home = os.path.join(self.folder, f"machine{number}")
        os.makedirs(os.path.join(home, "run"), mode=0o700, exist_ok=True)
        bins = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
        return realserver.environment(
            HOME=home, XDG_RUNTIME_DIR=os.path.join(home, "run"), XDG_CACHE_HOME=os.path.join(home, "cache"), PATH=bins,
            PYTHONPATH=os.path.join(realserver.ROOT, "python"), OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", LCACHE_BIN=realserver.BINARY,
            LCACHE_TMPFS="1", LCACHE_CLUSTER_KEY=self.key, LCACHE_CACHE=os.path.join(home, "ssd"), LCACHE_LISTEN=self.hosts[number], LCACHE_LINGER="20",
            PET_LOCAL_ADDR=self.hosts[number], **more,
        )  # fmt: skip

    def stop(self):
        for pid in servers(self.folder):
            os.kill(pid, 15)
            wait_for_end(pid)


@pytest.fixture
def machines(root, tmp_path):
    made = Machines(tmp_path, 3)
    yield made
    made.stop()


def run_everywhere(machines, command, **variables):
    """Runs a command on all machines, and returns their output."""
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=machines.environment(number, **variables), cwd=machines.folder)
        for number in range(len(machines.hosts))
    ]
    try:
        said = [process.communicate(timeout=150) for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0] * len(running), "\n".join(errors[-3000:] for _, errors in said)
    return "".join(out for out, _ in said)


def require_one_read(said, samples, size, ranks):
    """Asserts that all samples were read once from the source in epoch 0, and nothing in epoch 1."""
    epochs = [tuple(map(int, found)) for found in re.findall(r"^epoch (\d): (\d+) samples, (\d+) bytes from the source, cluster ok of 3$", said, re.M)]
    padded = -(-samples // ranks) * ranks
    assert [epoch[:2] for epoch in epochs] == [(0, padded), (1, padded)], said
    assert size <= epochs[0][2] <= 1.02 * size and epochs[1][2] == 0, said


def test_torchrun(folder, machines):
    """LCACHE_CLUSTER=auto under torchrun: every machine's embedded server joins, and together they read the source once."""
    pytest.importorskip("torch")
    command = [os.path.join(RECIPES, "torchrun.sh"), os.path.join(HERE, "cluster_run.py"), folder.root, "2"]
    port = str(free_port(machines.hosts[0]))
    said = run_everywhere(machines, command, HEAD=machines.hosts[0], MACHINES="3", PORT=port, RUN=f"test-{port}")
    require_one_read(said, len(folder), folder.bytes, ranks=3)


# A recipe that needs a scheduler is part of make test-faults.
scheduler = pytest.mark.skipif(not os.environ.get("LCACHE_SCHEDULERS"), reason="schedulers are started by make test-faults PARTS=schedulers")


@scheduler
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("slurmctld"), reason="needs root, and slurm-wlm")
def test_slurm(folder, machines):
    """Three nodes of a real Slurm, all on this machine: in a step, auto finds the others by SLURM_STEP_NODELIST."""
    where = os.path.join(machines.folder, "slurm")
    command = [os.path.join(HERE, "slurm_here.sh"), where, os.path.join(RECIPES, "slurm.sh"), folder.root, os.path.join(HERE, "cluster_run.py"), folder.root, "2"]
    env = machines.environment(0)
    env["PATH"] = os.pathsep.join([os.path.dirname(realserver.BINARY), env["PATH"]])
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, done.stderr[-5000:]
    with open(os.path.join(where, "out")) as f:
        said = f.read()
    require_one_read(said, len(folder), folder.bytes, ranks=3)
