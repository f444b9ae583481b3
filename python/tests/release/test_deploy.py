"""The files in deploy/, and each block of docs/deploy.md that can be run."""

import ctypes
import errno
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from conftest import EPOCH, ROOT, TOOLS, clean, need, need_root, run, wait_until
from machine import Machine

DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "systemd" / "lcache@.service"
KUSTOMIZE = "sigs.k8s.io/kustomize/kustomize/v5@v5.7.1"
ARCH = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())

# A training of several ranks: each reads its part with torch's own sampler.
RANKS = """
import os, sys
from torch.utils.data import DistributedSampler
from lcache.torch import DataLoader, Dataset

def decode(content, sample):
    return sample[0], content == open(os.path.join(DATA, sample[1]), "rb").read()

DATA = os.environ["DATA"]
rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
dataset = Dataset(DATA, decode=decode)
sampler = DistributedSampler(dataset, num_replicas=world, rank=rank, seed=0)
loader = DataLoader(dataset, batch_size=16, sampler=sampler)
for epoch in range(2):
    loader.set_epoch(epoch)
    seen = []
    for indices, right in loader:
        assert all(right), "bytes differ from the file's"
        seen += indices.tolist()
    assert seen == list(sampler), "another order than torch's"
print(f"rank {rank} of {world} read {len(seen)} samples", flush=True)
"""


def blocks(language):
    """The blocks of the page in a language that are not marked."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / "docs" / "deploy.md").read_text(), re.M | re.S)


def variables(installed):
    """The environment of a shell with the wheel."""
    return clean(installed / "bin")


def test_unit_security():
    """At most 3.0 of 10, where 0 is best; the page names the number."""
    need("systemd-analyze")
    said = run("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=30", UNIT)
    level = re.search(r"exposure level for .*: ([\d.]+) ", said)[1]
    assert f"rates the unit {level} of 10" in (ROOT / "docs" / "deploy.md").read_text()


def test_unit_sandbox(dist, data, torch, tmp_path):
    """The installed unit, started by systemd in its whole sandbox, still has io_uring, O_DIRECT and memfd, and serves a torch epoch."""
    need_root("to boot a systemd")
    need("systemd-nspawn")
    (deb,) = dist.glob(f"*_{ARCH}.deb")
    check, state = tmp_path / "check", tmp_path / "state"
    check.mkdir()
    state.mkdir()
    python = os.path.realpath(sys.executable)
    print("started by a systemd that systemd-nspawn boots")
    with Machine(tmp_path / "machine") as machine:
        env = {**clean(), "DEBIAN_FRONTEND": "noninteractive"}
        machine.mount(dist, "/mnt")
        machine.run("dpkg", "--install", f"/mnt/{deb.name}", env=env)
        (machine.root / "etc/lcache/train.env").write_text("LCACHE_SOURCE=/srv/train\nLCACHE_FACTS=off\n")
        (machine.root / "etc/systemd/system/check.service").write_text(
            "[Unit]\nWants=lcache@train.service\nAfter=lcache@train.service\nSuccessAction=poweroff-force\nFailureAction=poweroff-force\n"
            "[Service]\nType=oneshot\nExecStart=/bin/sh /check/run.sh\nStandardOutput=file:/check/out\nStandardError=file:/check/errors\nTimeoutStartSec=120\n"
        )
        (check / "run.sh").write_text(
            "set -e\nexport LCACHE_SOCKET=/run/lcache/train/lcache.sock HOME=/root LCACHE_FACTS=off\n"
            "for i in $(seq 600); do test -S $LCACHE_SOCKET && break; sleep 0.1; done\n"
            f"PYTHONPATH=/usr/share/lcache/python:/torch {python} /epoch/epoch.py /srv/train /nowhere\n"
            "lcache status --json > /check/status.json\n"
            "grep -E '^(Seccomp|NoNewPrivs|CapBnd)' /proc/$(systemctl show -P MainPID lcache@train)/status > /check/sandbox\n"
            "systemctl stop lcache@train\nsystemctl show -P Result lcache@train > /check/result\n"
        )
        # nspawn has a /tmp of its own, where torch may be.
        binds = {data: "/srv/train", state: "/var/lib/lcache", check: "/check", EPOCH.parent: "/epoch", torch: "/torch"}
        for place in binds.values():
            (machine.root / place[1:]).mkdir(parents=True, exist_ok=True)
        shown = [f"--bind={folder}:{place}" for folder, place in binds.items()]
        # nspawn's own filter lacks io_uring. The unit's filter is the one under test.
        command = ["systemd-nspawn", "--quiet", "--directory", machine.root, "--boot", "--register=no", "--keep-unit", "--kill-signal=SIGRTMIN+4", "--resolv-conf=off",
                   "--timezone=off", "--system-call-filter=io_uring_setup io_uring_enter io_uring_register", *shown, "--", "systemd.unit=check.service", "systemd.firstboot=no"]
        machine.without_devices()
        with (tmp_path / "console").open("w") as console:
            subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=console, stderr=console, timeout=300, check=False)
    told = "\n".join(path.read_text(errors="replace")[-3000:] for path in (tmp_path / "console", check / "errors") if path.exists())
    assert "two epochs" in (check / "out").read_text(), told
    status = json.loads((check / "status.json").read_text())
    sandbox = dict(line.split(":\t") for line in (check / "sandbox").read_text().splitlines())
    assert sandbox["Seccomp"] == "2" and sandbox["NoNewPrivs"] == "1" and int(sandbox["CapBnd"], 16) == 0
    assert status["direct"] is True
    assert (check / "result").read_text() == "success\n"
    if not status["io_engine"].startswith("io_uring") and subprocess.run([ROOT / "scripts" / "has-io-uring"], check=False).returncode != 0:
        pytest.skip("this kernel or container refuses io_uring")
    assert status["io_engine"].startswith("io_uring")  # "(partly registered)" where the container may not lock memory


def filtered():
    """The system calls that the unit allows: its lines in order, a set of systemd for each name with @, ~ takes away."""
    allowed = set()
    for line in re.findall(r"^SystemCallFilter=(.*)$", UNIT.read_text(), re.M):
        names = line.removeprefix("~").split()
        calls = set()
        while names:
            name = names.pop()
            if name.startswith("@"):
                said = run("systemd-analyze", "syscall-filter", "--no-pager", name)
                names += [word for row in said.splitlines()[1:] for word in row.split("#")[0].split()]
            else:
                calls.add(name)
        allowed = allowed - calls if line.startswith("~") else allowed | calls
    return allowed


def compiled(calls, path):
    """A file with the filter as the kernel takes it: all other calls fail with EPERM, as the unit says."""
    seccomp = ctypes.CDLL("libseccomp.so.2")
    seccomp.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(seccomp.seccomp_init(0x00050000 | errno.EPERM))  # SCMP_ACT_ERRNO
    numbers = [seccomp.seccomp_syscall_resolve_name(name.encode()) for name in sorted(calls)]
    for number in numbers:
        if number >= 0:  # the others are calls of other architectures
            assert seccomp.seccomp_rule_add(context, 0x7FFF0000, number, 0) == 0  # SCMP_ACT_ALLOW
    with path.open("wb") as file:
        assert seccomp.seccomp_export_bpf(context, file.fileno()) == 0
    return path


@pytest.mark.parametrize("denied", [(), ("io_uring_setup",)], ids=["unit", "no-io-uring"])
def test_unit_filter(denied, installed, data, tmp_path):
    """Under the unit's filter of system calls alone, where no systemd can boot: io_uring, O_DIRECT and memfd work. Without one of its calls, io_uring does not."""
    need("bwrap", "systemd-analyze")
    print("started under the unit's filter by bwrap")
    calls = filtered()
    assert {"io_uring_setup", "memfd_create", "pidfd_open"} <= calls and not {"mount", "ptrace", "bpf"} & calls
    env = {**variables(installed), "LCACHE_SOCKET": str(tmp_path / "socket"), "LCACHE_CACHE": str(tmp_path / "cache"), "LCACHE_MEMORY": "256MB"}
    program = installed / "bin" / "lcache"
    run(program, "ingest", "--no-prefill", "--quiet", "--source", data, env=env)
    with compiled(calls - set(denied), tmp_path / "filter").open("rb") as filters:
        command = ["bwrap", "--dev-bind", "/", "/", "--seccomp", str(filters.fileno()), "--", program, "serve"]
        serving = subprocess.Popen(command, env=env, pass_fds=[filters.fileno()], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: subprocess.run([program, "status"], env=env, capture_output=True, check=False).returncode == 0, 60, "the server")
        client = {**clean(installed / "bin"), "LCACHE_SOCKET": env["LCACHE_SOCKET"], "LCACHE_BIN": "/nowhere/lcache"}
        assert "two epochs" in run(installed / "bin" / "python", EPOCH, data, "/nowhere", env=client)
        status = json.loads(run(program, "status", "--json", env=env))
    finally:
        run(program, "stop", tmp_path / "cache", env=env)
        serving.wait(60)
    assert status["direct"] is True
    has_io_uring = subprocess.run([ROOT / "scripts" / "has-io-uring"], check=False).returncode == 0
    assert status["io_engine"].startswith("io_uring") == (has_io_uring and not denied)


def manifests(name, tmp_path):
    """The documents of a manifest, as kustomize puts them together, and the file."""
    yaml = pytest.importorskip("yaml")
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed, which builds kustomize")
    env = {**os.environ, "GOFLAGS": "", "CGO_ENABLED": "0", "GOBIN": str(tmp_path / "bin")}
    run(go, "install", KUSTOMIZE, env=env, timeout=1200)
    whole = tmp_path / f"{name}.yaml"
    whole.write_text(run(tmp_path / "bin" / "kustomize", "build", DEPLOY / "kubernetes" / name))
    return list(yaml.safe_load_all(whole.read_text())), whole


@pytest.mark.slow
@pytest.mark.parametrize("name", ["daemonset", "sidecar"])
def test_kubernetes(name, installed, data, tmp_path):
    """The manifests are valid. Their containers' commands, with their variables, list and serve the files; the probes answer before and after as they must."""
    documents, whole = manifests(name, tmp_path)
    run(TOOLS / "kubernetes-validate", "--strict", whole)
    settings = next(d for d in documents if d["kind"] == "ConfigMap")["data"]
    pod = next(d for d in documents if d["kind"] != "ConfigMap")["spec"]["template"]["spec"]
    assert pod.get("hostPID") if name == "daemonset" else pod["shareProcessNamespace"]
    containers = {c["name"]: c for c in [*pod["initContainers"], *pod["containers"]]}
    folder, env = installed, variables(installed)
    places = {"/data/train": data, "/cache": tmp_path / "cache", "/run/lcache": tmp_path / "run"}
    for place in list(places.values())[1:]:
        place.mkdir()

    def moved(text):
        for place, here in places.items():
            text = text.replace(place, str(here))
        return text

    server = containers["serve" if name == "daemonset" else "lcache"]
    (port,) = server["ports"]
    assert settings["LCACHE_METRICS"] == f"0.0.0.0:{port['containerPort']}"
    (free,) = free_ports(1)
    env = {**env, **{key: moved(value) for key, value in settings.items()}, "LCACHE_MEMORY": "256MB", "LCACHE_METRICS": f"127.0.0.1:{free}"}
    probes = {kind: server[kind]["httpGet"] for kind in ("startupProbe", "livenessProbe")}
    assert all(probe["port"] == port["name"] for probe in probes.values())

    def answers(kind):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{free}{probes[kind]['path']}", timeout=10) as answer:
                return answer.status == 200
        except OSError:
            return False

    run(folder / "bin" / "lcache", *containers["list"]["args"], env=env)
    assert not answers("startupProbe")
    serving = subprocess.Popen([folder / "bin" / "lcache", *server["args"]], env=env, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: answers("startupProbe"), 60, "the probe")
        assert answers("livenessProbe")
        client = {**clean(folder / "bin"), "LCACHE_SOCKET": env["LCACHE_SOCKET"], "LCACHE_BIN": "/nowhere/lcache"}
        assert "two epochs" in run(folder / "bin" / "python", EPOCH, data, "/nowhere", env=client)
    finally:
        serving.terminate()
        assert serving.wait(60) == 0


def test_manifests_valid():
    """Each manifest by itself. Expanding them takes minutes, and is test_kubernetes."""
    files = [path for path in sorted((DEPLOY / "kubernetes").glob("*/*.yaml")) if path.name != "kustomization.yaml"]
    assert len(files) == 3
    run(TOOLS / "kubernetes-validate", "--strict", *files)


def test_torchrun(installed, data, tmp_path):
    """The block of the page: two ranks, one server."""
    folder, env = installed, variables(installed)
    (command,) = (line for block in blocks("sh") for line in block.splitlines() if "torchrun" in line)
    (tmp_path / "train.py").write_text(RANKS)
    command = command.replace("/data/train", str(data)).replace("/nvme/lcache", str(tmp_path / "cache"))
    said = run("sh", "-c", command, env={**env, "DATA": str(data)}, cwd=tmp_path)
    assert "rank 0 of 2 read 300 samples" in said and "rank 1 of 2 read 300 samples" in said
    assert "2 of 2 epochs" in said


def test_jupyter(installed, data, tmp_path):
    """The cell of the page, in a Python that reads it line by line, as a kernel does."""
    folder, env = installed, variables(installed)
    (cell,) = blocks("python")
    cell = cell.replace("/data/train", str(data)).replace("/nvme/lcache", str(tmp_path / "cache"))
    check = f"assert sorted(map(int, sizes)) == sorted(path.stat().st_size for path in __import__('pathlib').Path({str(data)!r}).glob('*/*'))\nprint('right')\n"
    assert "right" in run(folder / "bin" / "python", "-q", "-i", input=cell + "\n" + check, env={**env, "LCACHE_LINGER": "0"}, cwd=tmp_path)


def test_slurm(installed, data, tmp_path):
    """The block of the page, on a cluster of one node that the test starts on the loopback."""
    need_root("to start Slurm's daemons")
    need("sbatch", "slurmctld", "slurmd", "munged")
    folder, env = installed, variables(installed)
    (command,) = (line for block in blocks("sh") for line in block.splitlines() if "sbatch" in line)
    with slurm(tmp_path / "slurm", env) as conf:
        env = {**env, "SLURM_CONF": str(conf), "DATA": str(data), "LCACHE_ROOT": str(tmp_path / "cache")}
        work = tmp_path / "work"
        work.mkdir()
        (work / "train.py").write_text(RANKS)
        (work / "deploy").symlink_to(DEPLOY)
        number = run(*command.split()[:1], "--parsable", "--output", work / "out", *command.split()[1:], env=env, cwd=work).strip()
        states = ("COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "CANCELLED")

        def state():
            return re.search(r"JobState=(\w+)", run("scontrol", "show", "job", number, env=env))[1]

        wait_until(lambda: state() in states, 120, "the job")
        said = (work / "out").read_text()
        assert state() == "COMPLETED", said
        assert "rank 0 of 1 read 600 samples" in said and "train.py" in said and "exact" in said, said


class slurm:
    """A cluster of one node: munged, slurmctld and slurmd, all on the loopback, with files in a folder."""

    def __init__(self, folder, env):
        self.folder, self.env, self.started = folder, env, []

    def start(self, *command, **options):
        log = (self.folder / f"{Path(command[0]).name}.log").open("w")
        self.started.append(subprocess.Popen([str(word) for word in command], env=self.env, stdout=log, stderr=log, **options))

    def __enter__(self):
        self.folder.mkdir()
        for name in ("munge", "state", "spool"):
            (self.folder / name).mkdir(mode=0o755)
        key = self.folder / "munge" / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        munge = self.folder / "munge"
        socket = munge / "socket"
        node = os.uname().nodename
        conf = self.folder / "slurm.conf"
        ports = free_ports(2)
        conf.write_text(
            f"ClusterName=one\nSlurmctldHost={node}(127.0.0.1)\nSlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\nAuthInfo=socket={socket}\nCredType=cred/munge\n"
            f"CryptoType=crypto/munge\nSlurmctldPort={ports[0]}\nSlurmdPort={ports[1]}\nStateSaveLocation={self.folder}/state\nSlurmdSpoolDir={self.folder}/spool\n"
            f"SlurmctldPidFile={self.folder}/ctld.pid\nSlurmdPidFile={self.folder}/slurmd.pid\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nMpiDefault=none\n"
            "SchedulerType=sched/builtin\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nReturnToService=2\nJobAcctGatherType=jobacct_gather/none\n"
            f"AccountingStorageType=accounting_storage/none\nNodeName={node} NodeAddr=127.0.0.1 CPUs={os.cpu_count()} State=UNKNOWN\n"
            f"PartitionName=main Nodes={node} Default=YES MaxTime=INFINITE State=UP\n".replace("CryptoType=crypto/munge\n", "")
        )
        (self.folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
        self.env = {**self.env, "SLURM_CONF": str(conf)}
        files = [f"--{what}={munge}/{what}" for what in ("pid-file", "log-file", "seed-file")]
        self.start("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={socket}", *files)
        try:
            wait_until(socket.exists, 20, "munged")
            self.start("slurmctld", "-D", "-f", conf)
            self.start("slurmd", "-D", "-f", conf)
            wait_until(lambda: self.idle(node), 60, "the node")
        except BaseException as e:
            self.__exit__()
            raise AssertionError("\n".join(path.read_text()[-2000:] for path in self.folder.glob("*.log"))) from e
        return conf

    def idle(self, node):
        said = subprocess.run(["sinfo", "-h", "-n", node, "-o", "%t"], env=self.env, capture_output=True, text=True, check=False)
        return said.stdout.strip() == "idle"

    def __exit__(self, *_):
        for process in reversed(self.started):
            process.terminate()
        for process in self.started:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_ports(count):
    import socket

    listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in listening]
    for s in listening:
        s.close()
    return ports
