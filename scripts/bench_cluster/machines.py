"""The machines of bench-cluster: for each an lcache server with an address of its own, a cache on a volume of its own, and one training process."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from bench_runs.stage import Stage

FOLDER = Path(__file__).parent
PEER_MEMORY = 32 << 20  # of each server in a cluster. An ingest that is in no cluster chooses blocks by the rest, less 16 MiB that such a server rounds up


class Failed(Exception):
    """A measurement that can't be believed, or did not end."""


class Talker:
    """A process that answers lines of JSON."""

    def __init__(self, on: Stage, name: str, command: list[str], env: dict[str, str]) -> None:
        self.name, self.popen = name, on.start(command, env)
        self.lines: queue.Queue[str | None] = queue.Queue()
        self.complaints: list[str] = []
        for read in (self._answers, self._complaints):
            threading.Thread(target=read, daemon=True).start()

    def _answers(self) -> None:
        assert self.popen.stdout
        for line in self.popen.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def _complaints(self) -> None:
        assert self.popen.stderr
        for line in self.popen.stderr:
            self.complaints = [*self.complaints[-20:], line.rstrip()]

    def send(self, **what: Any) -> None:
        assert self.popen.stdin
        with contextlib.suppress(BrokenPipeError):  # receive has the reason
            self.popen.stdin.write(json.dumps(what) + "\n")
            self.popen.stdin.flush()

    def line(self, within: float) -> str:
        """The next line of its output. Raises Failed if it ends, or the time is over."""
        try:
            line = self.lines.get(timeout=within)
        except queue.Empty:
            raise Failed(f"{self.name}: no answer within {within:.0f} s\n" + "\n".join(self.complaints)) from None
        if line is None:
            self.popen.wait(10)
            raise Failed(f"{self.name} ended with {self.popen.returncode}\n" + "\n".join(self.complaints))
        return line

    def receive(self, within: float) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.line(within))
        if said.get("kind") == "failed":
            raise Failed(f"{self.name}: {said['why']}")
        return said

    def end(self, how: int = signal.SIGTERM, within: float = 60) -> None:
        """Ends the process and waits for it."""
        if self.popen.poll() is None:
            self.popen.send_signal(how)
        try:
            self.popen.wait(within)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait(10)
            raise Failed(f"{self.name} did not end within {within:.0f} s") from None


class Source(Talker):
    """The web server that all machines share."""

    def __init__(self, on: Stage, python: str, samples: int, size: int) -> None:
        options = json.dumps({"host": "127.0.0.1", "samples": samples, "size": size})
        super().__init__(on, "the source", [python, str(FOLDER / "web_source.py"), options], dict(os.environ))
        self.url = f"http://127.0.0.1:{self.receive(20)['port']}/list"

    def sent(self) -> int:
        """Bytes of samples that it has sent so far."""
        self.send()
        return int(self.receive(20)["bytes"])

    def limit(self, rate: float) -> None:
        self.send(rate=rate)
        self.receive(20)


class Machine:
    """One machine: a server that may be started again, and its training process."""

    def __init__(self, bench: Bench, number: int, cache: Path, program: tuple[str, str] | None = None) -> None:
        self.bench, self.number, self.cache = bench, number, cache
        self.program, self.client = program or (bench.program, bench.client)
        self.address = f"127.0.0.{2 + number}"
        self.server: Talker | None = None
        self.reader: Talker | None = None
        self.job: Any = None

    @property
    def name(self) -> str:
        return f"machine {self.number}"

    def env(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("LCACHE_")}
        return kept | {"LCACHE_FACTS": "off", "LCACHE_TMPFS": "1", "LCACHE_LINGER": "0", "PYTHONPATH": self.client}

    def ingest(self, world: int, budget: int | None, prefill: bool = False, cluster: list[str] | None = None, layout: str = "static") -> subprocess.Popen[str]:
        """Begins to make the cache. filled waits for it."""
        rank = self.number if world > 1 else 0
        shutil.rmtree(self.cache, ignore_errors=True)
        command = [
            self.program, "ingest", "--source", self.bench.source.url, "--cache", str(self.cache), "--layout", layout, "--quiet",
            "--recipe", "torch.distributed_sampler", "--seed", "0", "--epochs", "100", "--batch-size", str(self.bench.o.batch_size),
            "--world-size", str(world), "--ranks", str(rank), "--memory", str(self.bench.o.memory - (0 if cluster else PEER_MEMORY + (16 << 20))), *(cluster or []),
        ]  # fmt: skip
        if budget is not None:
            command += ["--budget", str(budget)]
        if not prefill:
            command.append("--no-prefill")
        return self.bench.on.start(command, self.env())

    def filled(self, ingest: subprocess.Popen[str]) -> None:
        _, complaint = ingest.communicate(timeout=600)
        if ingest.returncode:
            raise Failed(f"{self.name}: ingest: {complaint.strip()}")

    def begin(self, cluster: list[str] | None = None) -> None:
        """Starts the server. ready waits until clients can connect."""
        command = [self.program, "serve", "--cache", str(self.cache), "--memory", str(self.bench.o.memory), *(cluster or [])]
        self.server = Talker(self.bench.on, self.name, command, self.env())

    def ready(self) -> None:
        assert self.server
        self.server.line(90)

    def stats(self) -> dict[str, Any]:
        job = self.bench.connect(self.cache / "lcache.sock")
        try:
            return dict(job.stats())
        finally:
            job.close()

    def read(self, epoch: int, world: int, rate: float = 0) -> None:
        """Begins to read an epoch. done waits for it."""
        if self.reader is None:
            options = {"socket": str(self.cache / "lcache.sock"), "size": self.bench.o.size, "timeout": 120}
            env = {k: v for k, v in os.environ.items() if not k.startswith("LCACHE_")} | {"PYTHONPATH": self.client}
            self.reader = Talker(self.bench.on, f"the reader of {self.name}", [self.bench.o.python, str(FOLDER / "reader.py"), json.dumps(options)], env)
            self.reader.receive(60)
        self.reader.send(epoch=epoch, rank=self.number if world > 1 else 0, rate=rate)

    def done(self) -> dict[str, Any]:
        assert self.reader
        return self.reader.receive(self.bench.o.epoch_timeout)

    def end(self) -> None:
        if self.reader:
            self.reader.end()
            self.reader = None
        if self.server:
            self.server.end()
            self.server = None

    def kill(self) -> None:
        """Kills server and reader, whatever they do."""
        for process in (self.reader, self.server):
            if process and process.popen.poll() is None:
                process.popen.kill()
                process.popen.wait(20)
        self.reader = self.server = None


class Bench:
    """What all scenes share: the stage, the source and the program."""

    def __init__(self, o: Any, on: Stage) -> None:
        self.o, self.on = o, on
        self.program, self.client = o.program, str(FOLDER.parent.parent / "python")
        sys.path.insert(0, self.client)
        import lcache

        self._connect = lcache.connect
        self.source = Source(on, o.python, o.samples, o.size)
        self.key = on.folder / "key"
        self.key.write_text(subprocess.run([self.program, "cluster", "key"], capture_output=True, text=True, check=True, timeout=20).stdout)
        self.key.chmod(0o600)

    def connect(self, socket: Path) -> Any:
        return self._connect(str(socket), timeout=30)

    def note(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

    def machines(self, kind: str, number: int = 3) -> list[Machine]:
        """Machines whose caches have a folder of their own on their volumes."""
        return [Machine(self, i, self.on.volumes[i].folder / kind) for i in range(number)]

    def cluster(self, m: Machine, number: int = 3) -> list[str]:
        """The flags that make a machine a member."""
        where = "listen" if m.number == 0 else "127.0.0.2"
        return ["--cluster", where, "--cluster-key", str(self.key), "--listen", m.address, "--expect", str(number), "--peer-memory", str(PEER_MEMORY)]

    def make(self, machines: list[Machine], world: int, budget: int | None, prefill: bool, together: bool) -> None:
        """Makes the caches of machines, side by side. Filling is not limited by the source."""
        self.source.limit(0)
        ingests = [m.ingest(world, budget, prefill, self.cluster(m, len(machines)) if together and prefill else None) for m in machines]
        for m, ingest in zip(machines, ingests):
            m.filled(ingest)

    def start(self, machines: list[Machine], together: bool) -> None:
        for m in machines:
            m.begin(self.cluster(m, len(machines)) if together else None)
        for m in machines:
            m.ready()
        if together:
            self.formed(machines, time.monotonic() + 30)

    def formed(self, machines: list[Machine], until: float) -> float:
        """Waits until all machines have one roster of all; returns that moment."""
        jobs = [self.connect(m.cache / "lcache.sock") for m in machines]
        try:
            while True:
                seen = [j.stats()["cluster"] for j in jobs]
                now = time.monotonic()
                if all(c["state"] == "ok" and sum(p["in_roster"] for p in c["peers"]) == len(machines) for c in seen) and len({c["roster"] for c in seen}) == 1:
                    return now
                if now > until:
                    raise Failed(f"no cluster of {len(machines)}: {[c['state'] for c in seen]}")
                select.select([], [], [], 0.01)
        finally:
            for j in jobs:
                j.close()

    def epoch(self, machines: list[Machine], epoch: int, rate: float = 0) -> dict[str, Any]:
        """One epoch of all machines at once. It is an error if a sample is not delivered."""
        world = len(machines)
        before, read = self.counters(machines), self.on.moved()[0]
        for m in machines:
            m.read(epoch, world, rate)
        got = [m.done() for m in machines]
        after, read = self.counters(machines), self.on.moved()[0] - read
        numbers = sorted(n for g in got for n in g["numbers"])
        padding = -self.o.samples % world  # a distributed sampler repeats samples so that ranks are equal
        if len(numbers) != self.o.samples + padding or len(set(numbers)) != self.o.samples:
            raise Failed(f"epoch {epoch} had {len(set(numbers)):,} samples of {self.o.samples:,}, and {len(numbers):,} deliveries")
        seconds = max(g["ended"] for g in got) - min(g["began"] for g in got)
        figures: dict[str, Any] = {k: after[k] - before[k] for k in after}
        return figures | {"seconds": seconds, "device_read": read, "bytes": len(numbers) * self.o.size, "waits": [g["waits"] for g in got], "numbers": [g["numbers"] for g in got]}

    def counters(self, machines: list[Machine]) -> dict[str, float]:
        """What the machines have counted so far, and what others have: the source its bytes, the kernel those of the network."""
        jobs = [m.stats() for m in machines]
        out = {"source": float(self.source.sent()), "network": float(interface_bytes())}
        for key in ("hits", "misses", "hits_local", "hits_peer", "peer_in_bytes", "source_bytes"):
            out[key] = float(sum(s["totals"].get(key, s["jobs"][0].get(key, 0)) for s in jobs))
        peers = [p for s in jobs for p in s.get("cluster", {}).get("peers", [])]
        for key in ("in_bytes", "out_bytes", "out_parcels", "late_samples", "absent_samples"):
            out[f"peers_{key}"] = float(sum(p.get(key, 0) for p in peers))
        return out

    def clear(self, machines: list[Machine]) -> None:
        for m in machines:
            m.kill()
            shutil.rmtree(m.cache, ignore_errors=True)


def interface_bytes() -> int:
    """Bytes that the loopback interface has received. In the network of the stage nobody else uses it."""
    fields = next(line for line in Path("/proc/self/net/dev").read_text().splitlines() if line.lstrip().startswith("lo:"))
    return int(fields.split(":")[1].split()[0])
