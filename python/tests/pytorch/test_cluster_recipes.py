"""The recipes of examples/cluster for launchers that can run here: three "machines" are three groups of processes on 127.0.0.2 to 127.0.0.4."""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

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


# The folder of programs with Ray and kubernetes-validate, for recipes that are part of make test-faults.
PROGRAMS = os.environ.get("LCACHE_SCHEDULERS", "")
scheduler = pytest.mark.skipif(not PROGRAMS, reason="schedulers are started by make test-faults PARTS=schedulers")


def finish(command, env):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-5000:]
    return done.stdout


@scheduler
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("slurmctld"), reason="needs root, and slurm-wlm")
def test_slurm(folder, machines):
    """Three nodes of a real Slurm, all on this machine: in a step, auto finds the others by SLURM_STEP_NODELIST."""
    where = os.path.join(machines.folder, "slurm")
    env = machines.environment(0)
    env["PATH"] = os.pathsep.join([os.path.dirname(realserver.BINARY), env["PATH"]])
    finish([os.path.join(HERE, "slurm_here.sh"), where, os.path.join(RECIPES, "slurm.sh"), folder.root, os.path.join(HERE, "cluster_run.py"), folder.root, 2], env)
    require_one_read(contents(os.path.join(where, "out")), len(folder), folder.bytes, ranks=3)


@scheduler
def test_ray(folder, machines):
    """Three nodes of a real Ray, all on this machine. The servers, which stay for a while, have read the source once together."""
    address = f"{machines.hosts[0]}:{free_port(machines.hosts[0])}"
    ray = os.path.join(PROGRAMS, "ray")
    common = ["--num-cpus=1", "--object-store-memory=100000000", "--disable-usage-stats"]
    short = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # the names of its sockets have 60 bytes more, and may have 107 in all
    heads = ["--head", f"--port={address.rpartition(':')[2]}", "--include-dashboard=false", f"--temp-dir={short}"], [f"--address={address}"]
    env = [machines.environment(number, RAY_raylet_start_wait_time_s="180") for number in range(3)]
    nodes = []
    try:
        for number, host in enumerate(machines.hosts):
            log = os.path.join(machines.folder, f"ray-{number}.log")
            with open(log, "w") as out:
                command = [ray, "start", "--block", f"--node-ip-address={host}", *heads[number > 0], *common]
                nodes.append(subprocess.Popen(command, env=env[number], stdout=out, stderr=out))
            wait_for_text("Ray runtime started", log, nodes[-1])  # two that start at once take each other's sockets
        command = [os.path.join(PROGRAMS, "python"), os.path.join(RECIPES, "ray_train.py"), folder.root, "--workers=3", "--epochs=2"]
        said = finish(command, {**env[0], "RAY_ADDRESS": address, "RAY_DEDUP_LOGS": "0"})
        status = [realserver.lcache_command("status", "--socket", socket, "--json").json for socket in sockets(machines.folder)]
    finally:
        for node in nodes:
            node.terminate()
        for node in nodes:
            node.wait(60)
        shutil.rmtree(short, ignore_errors=True)  # what Ray leaves behind ends a moment later
    lines = set(re.findall(r"epoch (\d) rank (\d): (\d+) samples", said))  # each node prints those of all nodes, because they share one folder of logs
    assert sorted(lines) == [(str(e), str(r), "80") for e in range(2) for r in range(3)], said
    assert [one["cluster"]["state"] for one in status] == ["ok"] * 3
    assert folder.bytes <= sum(one["totals"]["source_bytes"] for one in status) <= 1.02 * folder.bytes


def contents(path):
    with open(path) as f:
        return f.read()


def sockets(root):
    return [os.path.join(where, name) for where, _, names in os.walk(root) for name in names if name == "lcache.sock"]


def wait_for_text(text, log, process, seconds=240):
    """Waits for a line of a program. A node of Ray takes up to a minute to start, and more on a busy machine."""
    end = time.monotonic() + seconds
    while text not in contents(log):
        assert process.poll() is None and time.monotonic() < end, contents(log)
        time.sleep(0.1)


@scheduler
def test_kubernetes():
    """The manifests are valid, and lcache understands the commands and variables in them."""
    files = sorted(name for name in os.listdir(RECIPES) if name.startswith("kubernetes"))
    command = [os.path.join(PROGRAMS, "python"), os.path.join(HERE, "manifests_run.py"), realserver.BINARY, *(os.path.join(RECIPES, name) for name in files)]
    said = finish(command, realserver.environment())
    assert sorted(line.partition(":")[0] for line in said.splitlines()) == ["lcache", "list", "train"]
