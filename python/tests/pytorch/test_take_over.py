"""After the server of a training was stopped, killed, or replaced by another one, the training continues: each batch in torch's order, each byte as in its file."""

import contextlib
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
import realserver
import torch
from embedded_servers import folder, root, servers  # noqa: F401
from training_run import EPOCHS, SEED, SIZE
from waits import until, wait_for_end

import lcache

PROGRAM = os.path.join(os.path.dirname(__file__), "training_run.py")
FEW = 3  # batches that are taken before anything happens
EPOCH = 240 // SIZE  # batches of an epoch


class Training:
    """A training_run in a separate process, and its output."""

    def __init__(self, folder, root, workers=0, method=None, program=(PROGRAM,), **env):
        command = [sys.executable, *program, folder.root, root, str(workers), *([method] if method else [])]
        self.folder = folder
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **env})
        self.errors, self.batches, self.epochs = [], [], []
        self._reading = threading.Thread(target=lambda: self.errors.extend(self.process.stderr))
        self._reading.start()
        self.line()
        self.server = self.epochs[0]["server"]

    def line(self):
        """Waits for one line of the training: a batch, or an epoch's beginning."""
        line = self.process.stdout.readline()
        if not line:
            return False
        said = json.loads(line)
        (self.epochs if isinstance(said, dict) else self.batches).append(said)
        return True

    def step(self, count=1):
        for _ in range(count):
            self.ask()
            assert self.line(), self.said()

    def ask(self):
        """Lets the training take its next batch, without waiting for it."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def said(self):
        """The training's stderr, which is complete after its end."""
        return "".join(self.errors)

    def end(self):
        """Lets the training run to its end, and checks all of its batches."""
        self.process.stdin.close()
        while self.line():
            pass
        assert self.process.wait(timeout=60) == 0, self.said()
        self._reading.join()
        reference = torch.utils.data.DataLoader(range(len(self.folder)), SIZE, shuffle=True, generator=torch.Generator().manual_seed(SEED))
        want = [batch.tolist() for _ in range(EPOCHS) for batch in reference]
        assert [[index for index, _ in batch] for batch in self.batches] == want
        for index, digest in (sample for batch in self.batches for sample in batch):
            assert digest == hashlib.sha256(self.folder.contents[index]).hexdigest()
        return self.said()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.stdin.close()
        self._reading.join()
        self.process.stdout.close()
        self.process.wait()


@pytest.fixture
def train(folder, root):
    started = []

    def start(*arguments, **more):
        started.append(Training(folder, root, *arguments, **more))
        return started[-1]

    yield start
    for training in started:
        training.close()


def patient(seconds):
    """Arguments of Python for a training that waits `seconds` for another server, if its client can wait."""
    return "-c", f"import sys, lcache; sys.modules.get('lcache._client.stopped_server', sys).PATIENCE = {seconds}; import training_run; training_run.main(*sys.argv[1:])"


def cache_of(root):
    (name,) = os.listdir(root)
    return os.path.join(root, name)


def wait_for_waiting_client(root):
    """Waits until a client has found that the server was stopped, and waits for another one. It writes so into the lock of the cache."""
    path = os.path.join(cache_of(root), "open.lock")

    def is_waiting():
        with open(path) as f:
            return "waiting" in f.read()

    until(is_waiting, "a client that waits for another server")


def command(*words):
    """Runs lcache; its result has stdout and stderr."""
    return subprocess.run([realserver.BINARY, *words], capture_output=True, text=True, timeout=120, env=os.environ)


class Serve:
    """`lcache serve`, and the line that it prints when it listens; empty if it ended before."""

    def __init__(self, *words):
        self.process = subprocess.Popen([realserver.BINARY, "serve", "--quiet", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.pid, self.line = self.process.pid, ""

    def listens(self):
        self.line = self.process.stdout.readline()
        return self.line != ""

    def end(self):
        """Returns the exit code and stderr."""
        if self.process.poll() is None and self.line:
            self.process.terminate()
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


METHODS = [(0, None), (2, "fork"), (1, "spawn")]
STARTED = ": started "  # in the warning that the client has started a server


@pytest.mark.parametrize("workers, method", METHODS)
def test_take_over(train, root, workers, method):
    """Another server takes over in the middle of an epoch. The training's own server has ended, and nothing is read from the source twice."""
    training = train(workers, method)
    training.step(FEW)
    assert servers(root) == [training.server]
    serve = Serve("--take-over", "--cache", cache_of(root))
    assert serve.listens(), serve.end()
    wait_for_end(training.server)
    assert servers(root) == [serve.pid]
    said = training.end()
    assert STARTED not in said, said
    assert servers(root) == [serve.pid], "it does not end with the training"
    assert serve.end()[0] == 0


@pytest.mark.parametrize("patience", [0, 10], ids=["a client that does not wait", "a client that waits"])
def test_take_over_with_waiting_clients(train, root, patience):
    """Clients that already look for a server find the new one. They never start one meanwhile, even if they do not wait for another server."""
    trainings = [train(program=patient(patience)) for _ in range(3)]
    for training in trainings:
        training.step(FEW)
    (server,) = servers(root)
    serve = Serve("--take-over", "--cache", cache_of(root))
    for _ in range(20):
        for training in trainings:
            training.ask()  # these batches are requested while the server changes
        time.sleep(0.02)  # so that requests come in each state of the change, which takes a few tenths of a second
    assert serve.listens(), serve.end()
    for training in trainings:
        assert STARTED not in training.end()
    assert servers(root) == [serve.pid]
    assert serve.end()[0] == 0


@pytest.mark.parametrize("batches, workers, method", [(FEW, 0, None), (FEW, 2, "fork"), (EPOCH + 1, 2, "fork"), (EPOCH + 1, 1, "spawn")])
def test_stop_and_serve(train, root, batches, workers, method):
    """Between `lcache stop` and `lcache serve` no client starts a server. At the end of an epoch the next client is a worker that was never connected."""
    training = train(workers, method)
    training.step(batches)
    stopped = command("stop", cache_of(root))
    assert stopped.returncode == 0
    assert stopped.stdout.splitlines() == [
        f"stopped train · pid {training.server} · {cache_of(root)}",
        f"! process {training.process.pid} still trains: it starts the server again in 10 s, unless another one runs by then; to serve it yourself: lcache serve --take-over --cache {cache_of(root)}",
    ]
    for _ in range(8):
        training.ask()  # more than workers have prefetched
    wait_for_waiting_client(root)
    assert servers(root) == []
    serve = Serve("--cache", cache_of(root))
    assert serve.listens(), serve.end()
    assert STARTED not in training.end()
    assert servers(root) == [serve.pid]
    assert serve.end()[0] == 0


def test_stop_names_training_processes(train, folder, root):
    """Also as JSON. A process that only reads the status, or has read all of its epochs, is not named."""
    with lcache.open(folder.root, root, recipe="torch.distributed_sampler", epochs=1, batch_size=16) as job:
        for _ in job.epoch(0):
            pass
        report = json.loads(command("stop", cache_of(root), "--json").stdout)
        assert report["embedded"] is True and "training" not in report
    training = train()
    training.step(FEW)
    report = json.loads(command("stop", cache_of(root), "--json").stdout)
    assert (report["pid"], report["embedded"], report["training"]) == (training.server, True, [training.process.pid])
    assert STARTED in training.end()


def test_no_other_server(train, root):
    """After 10 s one of the waiting ranks starts a server, and logs it. A later `lcache serve` fails, and says what to do."""
    trainings = [train() for _ in range(3)]
    for training in trainings:
        training.step(FEW)
    began = time.monotonic()
    assert command("stop", cache_of(root)).returncode == 0
    for training in trainings:
        for _ in range(4):
            training.ask()  # the first batch is there
    for training in trainings:
        for _ in range(4):
            assert training.line(), training.said()
    assert 9 < time.monotonic() - began
    (own,) = servers(root)
    late = Serve("--cache", cache_of(root))
    assert not late.listens()
    assert late.end() == (
        1,
        f"lcache serve: {cache_of(root)} is in use by process {own}, the server that a training started: "
        f"put this one in its place with lcache serve --take-over --cache {cache_of(root)} [LC021]\n",
    )
    serve = Serve("--take-over", "--cache", cache_of(root))
    assert serve.listens(), serve.end()
    said = "".join([training.end() for training in trainings])
    assert re.findall(r"WARNING .*its server was stopped, and no other one came: started one again \(pid (\d+)\)", said) == [str(own)]
    assert serve.end()[0] == 0


def test_a_server_late_in_the_wait(train, root):
    training = train()
    training.step(FEW)
    assert command("stop", cache_of(root)).returncode == 0
    began = time.monotonic()
    for _ in range(4):
        training.ask()  # the first batch is there
    time.sleep(max(0, 8 - (time.monotonic() - began)))  # clients wait for 10 s: the new server starts late in that time, with 2 s to listen
    serve = Serve("--cache", cache_of(root))
    assert serve.listens(), serve.end()
    assert STARTED not in training.end()
    assert serve.end()[0] == 0


def test_after_a_crash(train, root):
    """After a crash a client starts a server at once, even if it would wait long after a stop."""
    training = train(program=patient(1e6))
    training.step(FEW)
    os.kill(training.server, signal.SIGKILL)
    wait_for_end(training.server)
    training.step(4)  # the first batch is there
    (own,) = servers(root)
    assert own != training.server
    assert re.findall(r"WARNING .*its server had ended: started it again \(pid (\d+)\)", training.end()) == [str(own)]


def test_interrupted_while_waiting(train, root):
    """Ctrl-C ends the training at once, and no lock of it blocks others."""
    training = train()
    training.step(FEW)
    assert command("stop", cache_of(root)).returncode == 0
    for _ in range(4):
        training.ask()  # the first batch is there
    wait_for_waiting_client(root)
    training.process.send_signal(signal.SIGINT)
    assert training.process.wait(timeout=60) != 0
    training.close()
    assert "KeyboardInterrupt" in training.said() and servers(root) == []
    with lcache.open(training.folder.root, root) as job:  # a new program does not wait for another server
        assert len(job.get(range(10))) == 10


def test_short_deadline(folder, root):
    """A client with a deadline below 10 s waits for half of that time, and gets its answer in time."""
    with lcache.open(folder.root, root, timeout=6) as job:
        assert command("stop", cache_of(root)).returncode == 0
        assert [bytes(view) for view in job.get([7, 3]).samples] == [folder.contents[7], folder.contents[3]]


def test_two_at_once(train, root):
    """One of two takes the training's server over. The other one refuses to take over a server that no training started."""
    training = train()
    training.step(FEW)
    two = [Serve("--take-over", "--cache", cache_of(root)) for _ in range(2)]
    (winner,) = [serve for serve in two if serve.listens()]
    (loser,) = [serve for serve in two if serve is not winner]
    assert loser.end() == (
        1,
        f"lcache serve: {cache_of(root)} is in use by process {winner.pid}, a server that no training started: stop it first, with lcache stop {winner.pid} [LC021]\n",
    )
    assert STARTED not in training.end()
    assert winner.end()[0] == 0


def test_other_flags_than_the_training_relies_on(train, root):
    """Such flags are refused before any server is stopped."""
    training = train()
    training.step(FEW)
    held = socket.create_server(("127.0.0.1", 0))
    for words, error in [
        (("--on-error", "skip"), "served with --on-error fail, which the training relies on"),
        (("--metrics", f"127.0.0.1:{held.getsockname()[1]}"), f"address already in use by process {os.getpid()}: choose another --metrics"),
        (("--socket", "elsewhere.sock"), f"the training connects to {cache_of(root)}/lcache.sock: leave out --socket"),
    ]:
        refused = Serve("--take-over", "--cache", cache_of(root), *words)
        assert not refused.listens()
        code, said = refused.end()
        assert code == (2 if "--socket" in words else 1) and error in said
        assert servers(root) == [training.server]
    held.close()
    assert STARTED not in training.end()


def test_a_server_that_cannot_start(train, root):
    """The training's server was already stopped, and the training starts its own again at once."""
    training = train()
    training.step(FEW)
    serve = Serve("--take-over", "--cache", cache_of(root), "--memory", "1MB")
    assert not serve.listens()
    code, error = serve.end()
    assert code == 1 and "memory" in error
    wait_for_end(training.server)
    assert re.search(r"WARNING .*its server had ended: started it again", training.end())


def address():
    """A free address of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        return f"127.0.0.1:{held.getsockname()[1]}"


def metrics(at):
    """The pid of the server that has metrics there: the process that listens at the address."""
    import urllib.request

    with urllib.request.urlopen(f"http://{at}/metrics", timeout=30) as answer:
        assert b"\nlcache_build_info{" in answer.read()
    port = f":{int(at.rpartition(':')[2]):04X}"
    (inode,) = (line.split()[9] for line in open("/proc/net/tcp") if line.split()[1].endswith(port) and line.split()[3] == "0A")
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if any(os.readlink(f"/proc/{pid}/fd/{fd}") == f"socket:[{inode}]" for fd in os.listdir(f"/proc/{pid}/fd")):
                return int(pid)
    raise AssertionError(f"no process listens at {at}")

    with urllib.request.urlopen(f"http://{at}/metrics", timeout=30) as answer:
        return int(re.search(r"^lcache_pid\{.*\} (\d+)$", answer.read().decode(), re.M)[1])


def test_metrics(train, folder, root, tmp_path, monkeypatch, caplog):
    """The first server of a program has the metrics address. The next one logs that once, and serves without metrics. A take-over may use the address of the previous server."""
    at = address()
    monkeypatch.setenv("LCACHE_METRICS", at)
    monkeypatch.setenv("LCACHE_LINGER", "0")
    training = train()
    training.step(FEW)
    assert metrics(at) == training.server
    other = realserver.Folder(tmp_path / "val", [100] * 20)
    for _ in range(2):
        with lcache.open(other.root, str(tmp_path / "second")) as job:
            assert [bytes(view) for view in job.get(range(20)).samples] == other.contents
            pid = job.pid
        wait_for_end(pid)
    (record,) = [record for record in caplog.records if "metrics" in record.message]
    assert record.levelname == "WARNING"
    assert record.message == (
        f"{other.root}: no metrics at {at}: process {training.server} listens there: give LCACHE_METRICS another address, or leave it out"
    )
    serve = Serve("--take-over", "--cache", cache_of(root))
    assert serve.listens(), serve.end()
    assert metrics(at) == serve.pid
    training.end()
    assert serve.end()[0] == 0


@pytest.mark.parametrize("at", ["nonsense", "192.0.2.1:9400", "127.0.0.1:99999"])
def test_metrics_that_cannot_be(folder, root, monkeypatch, caplog, at):
    """An invalid metrics address does not end a training."""
    monkeypatch.setenv("LCACHE_METRICS", at)
    with lcache.open(folder.root, root) as job:
        assert [bytes(view) for view in job.get([3]).samples] == [folder.contents[3]]
    (record,) = [record for record in caplog.records if "metrics" in record.message]
    assert at in record.message
