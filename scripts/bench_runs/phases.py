"""The phases of bench-runs: one round after the other on one stage, each epoch checked before its figures count."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import queue
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from . import report, roles, stage

ROLES = Path(roles.__file__)
PYTORCH = 320 * 10**6  # memory of a process that has imported torch; it holds no samples


class Failed(Exception):
    """A measurement that can't be believed, or did not end."""


class Process:
    """A measured process, and the lines that it said."""

    def __init__(self, on: stage.Stage, python: str, role: str, options: dict[str, Any], env: dict[str, str], script: Path = ROLES) -> None:
        self.role = role
        self.lines: list[dict[str, Any]] = []
        self.queue: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.popen = on.start([python, str(script), role, json.dumps(options)], env)
        self.stage = on
        self.errors: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._complaints, daemon=True).start()

    def _read(self) -> None:
        assert self.popen.stdout
        for line in self.popen.stdout:
            said = json.loads(line)
            if said["kind"] in ("epoch", "ready"):  # the machine's counters at that moment
                said |= {"cpu": self.stage.cpu(), "moved": self.stage.moved()}
            self.lines.append(said)
            if said["kind"] != "progress":
                self.queue.put(said)
        self.queue.put(None)

    def _complaints(self) -> None:
        assert self.popen.stderr
        for line in self.popen.stderr:
            self.errors = [*self.errors[-20:], line.rstrip()]

    def wait(self, kind: str, until: float) -> dict[str, Any]:
        """The next line of a kind. Raises Failed if the process ends without it, or the time is over."""
        while True:
            try:
                said = self.queue.get(timeout=max(0.1, until - time.monotonic()))
            except queue.Empty:
                raise Failed(f"{self.role}: no {kind} in its time; --phase-timeout gives more\n" + "\n".join(self.errors)) from None
            if said is None:
                self.popen.wait(10)
                time.sleep(0.2)  # for the last lines of stderr
                raise Failed(f"{self.role} ended with {self.popen.returncode} before its {kind}\n" + "\n".join(self.errors))
            if said["kind"] == kind:
                return said

    def begin(self) -> None:
        assert self.popen.stdin
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()

    def end(self, until: float) -> None:
        try:
            code = self.popen.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.role}: did not end in its time") from None
        if code:
            time.sleep(0.2)
            raise Failed(f"{self.role} ended with {code}\n" + "\n".join(self.errors))


class Bench:
    """One round after the other on one stage."""

    def __init__(self, o: argparse.Namespace, on: stage.Stage) -> None:
        self.o, self.stage = o, on
        self.source, self.file = on.volume / "source", on.volume / "random"
        self.device_by = ""

    def note(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

    def prepare(self) -> None:
        """Writes the set, and the file that is read at random."""
        self.note(f"write {self.o.samples:,} samples of {self.o.size:,} bytes")
        n = os.cpu_count() or 1
        shares = [range(a, min(a + 1000, self.o.samples)) for a in range(0, self.o.samples, 1000)]
        with multiprocessing.get_context("fork").Pool(n) as pool:
            pool.starmap(roles.write_samples, [(self.source, share, self.o.size) for share in shares])
        if "device" in self.o.phases:
            piece = os.urandom(1 << 20)
            with self.file.open("wb") as f:
                for _ in range(min(self.o.bytes, 2 * 10**9) >> 20):
                    f.write(piece)
                os.fsync(f.fileno())
        stage.run("sync", "--file-system", self.stage.volume, timeout=600)

    def env(self, name: str) -> dict[str, str]:
        program, client = self.o.binaries[name]
        return {k: v for k, v in os.environ.items() if not k.startswith("LCACHE_")} | {"LCACHE_BIN": program, "PYTHONPATH": client, "LCACHE_LINGER": "0"}

    def run(self, roles_options: list[tuple[str, dict[str, Any]]], env: dict[str, str], epochs: int, last: str = "epoch") -> list[Process]:
        """Runs processes side by side over a cold volume, and waits until they and their servers have ended."""
        self.stage.remount()
        self.stage.limit(PYTORCH * sum(role == "reader" for role, _ in roles_options))
        until, kills = time.monotonic() + self.o.phase_timeout, self.stage.kills()
        processes: list[Process] = []
        try:
            for role, options in roles_options:
                processes.append(Process(self.stage, self.o.python, role, options, env))
                processes[-1].ready = processes[-1].wait("ready", until)  # type: ignore[attr-defined]
            for p in processes:
                p.begin()
            for p in processes:
                for _ in range(epochs):
                    p.wait(last, until)
            for p in processes:
                p.end(until)
            if not self.stage.end_processes(60):
                raise Failed("a server was still there a minute after its last client")
        except (Failed, BrokenPipeError) as e:
            if self.stage.kills() == kills:
                raise Failed(str(e)) from None
            raise Failed(f"the kernel ended a process: {self.stage.memory:,} bytes are too few for it; --memory-limit or --bytes gives more") from None
        finally:
            self.stage.end_processes(0)
        return processes

    def plain(self) -> float:
        [p] = self.run([("plain", {"source": str(self.source), "size": self.o.size, "samples": self.o.samples, "seed": 7})], dict(os.environ), 1)
        return float(self.epochs(p, "plain files")[0]["mb_s"])

    def device(self, seed: int) -> float:
        block = -(-self.o.size // 4096) * 4096
        if shutil.which("fio"):
            self.device_by = "fio"
            self.stage.remount()
            command = [
                "fio", "--name=random", f"--filename={self.file}", "--rw=randread", f"--bs={block}", "--direct=1", "--ioengine=libaio", "--iodepth=32",
                "--time_based", "--runtime=8", "--readonly", f"--randseed={seed}", "--output-format=json",
            ]  # fmt: skip
            out, complaint = (fio := self.stage.start(command, dict(os.environ))).communicate(timeout=60)
            if fio.returncode:
                raise Failed(f"fio: {complaint.strip()}")
            return float(json.loads(out)["jobs"][0]["read"]["bw_bytes"]) / 1e6
        self.device_by = "own reader"
        [p] = self.run([("device", {"file": str(self.file), "size": block, "seed": seed, "seconds": 8})], dict(os.environ), 1, "device")
        said = next(x for x in p.lines if x["kind"] == "device")
        return float(said["bytes"] / said["seconds"] / 1e6)

    def reader(self, cache: Path, seed: int) -> tuple[str, dict[str, Any]]:
        o = self.o
        return "reader", {
            "source": str(self.source), "cache": str(cache), "size": o.size, "samples": o.samples, "seed": seed, "batch_size": o.batch_size,
            "workers": o.workers, "epochs": o.epochs, "memory": o.memory,
        }  # fmt: skip

    def epochs(self, p: Process, what: str, alone: bool = True) -> list[dict[str, Any]]:
        """The figures of each epoch of a process. Raises Failed for an epoch that the device can't have served: it was not cold."""
        out, before = [], p.ready  # type: ignore[attr-defined]
        for e in (x for x in p.lines if x["kind"] == "epoch"):
            if e["samples"] != self.o.samples or e["bytes"] != self.o.bytes:
                raise Failed(f"{what}: epoch {e['epoch']} had {e['samples']} samples and {e['bytes']} bytes, the set has {self.o.samples} and {self.o.bytes}")
            figure = {"mb_s": e["bytes"] / e["seconds"] / 1e6, **{k: e[k] for k in ("seconds", "digest", "first_batch", "totals") if k in e}}
            if alone:
                read, written = (b - a for a, b in zip(before["moved"], e["moved"]))
                if read < self.o.bytes - self.stage.memory:
                    memory = f"the rest can't have been in {self.stage.memory:,} bytes of memory"
                    raise Failed(f"{what}: epoch {e['epoch']} read only {read:,} of {self.o.bytes:,} bytes from the device: {memory}")
                figure |= {"cpu_s_gb": (e["cpu"] - before["cpu"]) / e["bytes"] * 1e9, "read": read / e["bytes"], "written": written / e["bytes"]}
                before = e
            out.append(figure)
        if len({f["digest"] for f in out}) != len(out):
            raise Failed(f"{what}: two epochs had the same order")
        return out

    def one_run(self, name: str, cache: Path, seed: int, what: str) -> list[dict[str, Any]]:
        self.note(f"{name}: {what}")
        [p] = self.run([self.reader(cache, seed)], self.env(name), self.o.epochs)
        figures = self.epochs(p, f"{name}, {what}")
        self.note(f"{name}: {what}: " + ", ".join(f"{f['mb_s']:.0f}" for f in figures) + " MB/s")
        return figures

    def static(self, name: str) -> list[dict[str, Any]]:
        cache = self.stage.volume / "static"
        program, _ = self.o.binaries[name]
        done = subprocess.run(
            [program, "ingest", "--source", self.source, "--cache", cache, "--layout", "static", "--quiet"],
            env=self.env(name), capture_output=True, text=True, timeout=self.o.phase_timeout, check=False,
        )  # fmt: skip
        if done.returncode:
            raise Failed(f"{name}: ingest --layout static: {done.stderr.strip()}")
        try:
            figures = self.one_run(name, cache, 3, "static layout")
        finally:
            self.stage.end_processes(20)
            shutil.rmtree(cache, ignore_errors=True)
        if layouts := {f["totals"]["layout"] for f in figures} - {"static"}:
            raise Failed(f"{name}: the layout was {', '.join(map(str, layouts))}, not static")
        return figures

    def jobs(self, name: str, cache: Path) -> list[dict[str, Any]]:
        """Jobs at once with different seeds: epochs of each, then each one's speed and the sum while all of them read."""
        n = self.o.jobs
        self.note(f"{name}: {n} jobs at once")
        processes = self.run([self.reader(cache, 1 + j) for j in range(n)], self.env(name), self.o.epochs)
        out = []
        for j, p in enumerate(processes):
            for e, f in enumerate(self.epochs(p, f"{name}, job {j}", alone=False)):
                out.append(f | {"name": f"job {j} of {n}, epoch {e}"})
        read = processes[0].ready["moved"][0]  # type: ignore[attr-defined]
        if self.stage.moved()[0] - read < self.o.bytes - self.stage.memory:
            raise Failed(f"{name}: {n} jobs read less of the device than one epoch's bytes: it was not cold")
        ways = [[(x["t"], x["samples"]) for x in p.lines if x["kind"] == "progress"] for p in processes]
        curves = [grown(way, self.o.size) for way in ways]
        end = min(c[-1][0] for c in curves)
        second = [([t for t, samples in way if not samples] + [end])[1] for way in ways]  # when each came to its second epoch
        for word, start in (("while all read", max(c[0][0] for c in curves)), ("from the second epoch of one on", min(second))):
            if start >= end:
                continue
            speeds = [(at(c, end) - at(c, start)) / (end - start) / 1e6 for c in curves]
            out += [{"name": f"job {j} of {n}, {word}", "mb_s": s, "together": True} for j, s in enumerate(speeds)]
            out.append({"name": f"sum of {n} jobs, {word}", "mb_s": sum(speeds), "together": True})
            self.note(f"{name}: {n} jobs at once, {word}: " + " + ".join(f"{s:.0f}" for s in speeds) + " MB/s")
        return out

    def same(self, name: str, cache: Path) -> list[dict[str, Any]]:
        """Jobs at once with one seed, after one job alone with another: how often they read the device."""
        out, n = [], self.o.same_jobs
        for jobs, seed in ((1, 30), (n, 31)):
            self.note(f"{name}: {jobs} with one seed")
            processes = self.run([self.reader(cache, seed) for _ in range(jobs)], self.env(name), self.o.epochs)
            for j, p in enumerate(processes):
                self.epochs(p, f"{name}, job {j} of {jobs} with one seed", alone=False)
            read = self.stage.moved()[0] - processes[0].ready["moved"][0]  # type: ignore[attr-defined]
            times = [x["t"] for p in processes for x in p.lines if x["kind"] == "progress"]
            out.append({"name": f"{jobs} with one seed, all of them", "mb_s": jobs * self.o.epochs * self.o.bytes / (max(times) - min(times)) / 1e6, "device_read": read / self.o.bytes})
        self.note(f"{name}: one job read the device {out[0]['device_read']:.2f} times in {self.o.epochs} epochs, {n} with one seed {out[1]['device_read']:.2f} times")
        return out

    def validation(self, name: str, cache: Path) -> list[dict[str, Any]]:
        """A run over a log in its order. During its third epoch, a validation pass reads a tenth of the set. The other epochs give the time of an epoch alone."""
        o, epochs = self.o, 5
        part = o.samples // 10
        self.note(f"{name}: a validation pass during the third of {epochs} epochs")
        self.stage.remount()
        self.stage.limit(2 * PYTORCH)
        until = time.monotonic() + o.phase_timeout * epochs / o.epochs
        role, options = self.reader(cache, 20)
        try:
            training = Process(self.stage, o.python, role, options | {"epochs": epochs}, self.env(name))
            training.ready = training.wait("ready", until)  # type: ignore[attr-defined]
            passing = Process(self.stage, o.python, "validation", options | {"samples": part}, self.env(name))
            passing.wait("ready", until)
            training.begin()
            took = [training.wait("epoch", until)["seconds"] for _ in range(2)]
            passing.begin()
            passed = passing.wait("epoch", until)
            took += [training.wait("epoch", until)["seconds"] for _ in range(epochs - 2)]
            for p in (training, passing):
                p.end(until)
            self.stage.end_processes(60)
        finally:
            self.stage.end_processes(0)
        # Those that the pass touched: from the third on, as long as it took.
        touched = 1
        while touched < epochs - 3 and sum(took[2 : 2 + touched]) < passed["seconds"]:
            touched += 1
        alone = statistics.median([took[1], *took[2 + touched :]])
        longer = sum(took[2 : 2 + touched]) / alone - touched
        self.note(f"{name}: epochs of {', '.join(f'{t:.2f}' for t in took)} s; the pass over {part / o.samples:.0%} of the set took {passed['seconds']:.2f} s and {longer:.0%} of an epoch")
        return [
            {"name": "training beside the pass", "mb_s": touched * o.bytes / sum(took[2 : 2 + touched]) / 1e6},
            {"name": "training alone", "mb_s": o.bytes / alone / 1e6},
            {"name": "validation pass", "mb_s": passed["bytes"] / passed["seconds"] / 1e6, "longer": longer},
        ]

    def round(self, r: int) -> report.Round:
        o = self.o
        out: report.Round = {}
        if "plain" in o.phases:
            out["plain"] = self.plain()
            self.note(f"plain files: {out['plain']:.0f} MB/s")
        if "device" in o.phases:
            out["device"] = self.device(r)
            self.note(f"device at random, {self.device_by}: {out['device']:.0f} MB/s")
        names = list(o.binaries)
        for name in names[r % len(names) :] + names[: r % len(names)]:
            out[name] = self.binary(name)
        return out

    def binary(self, name: str) -> dict[str, Any]:
        o, out = self.o, {}
        cache = self.stage.volume / "cache"
        shutil.rmtree(cache, ignore_errors=True)
        cache.mkdir()
        if "first" in o.phases:
            out["first"] = self.one_run(name, cache, 1, "first run")
        for phase, what in (("second", "second run, another seed"), ("again", "the same seed again")):
            if phase in o.phases:
                out[phase] = self.one_run(name, cache, 2, what)
        same = [[f["digest"] for f in out[p]] for p in ("first", "second", "again") if p in out]
        if ("second" in out and same[0] == same[1]) or ("again" in out and "second" in out and same[1] != same[2]):
            raise Failed(f"{name}: the orders do not follow from the seeds: {same}")
        if "jobs" in o.phases:
            out["jobs"] = self.jobs(name, cache)
        if "same" in o.phases:
            out["same"] = self.same(name, cache)
        if "validation" in o.phases:
            out["validation"] = self.validation(name, cache)
        shutil.rmtree(cache)
        if "static" in o.phases:
            out["static"] = self.static(name)
        return out


def grown(way: list[tuple[float, int]], sample: int) -> list[tuple[float, float]]:
    """(time, bytes so far) over all epochs: the counts of a process begin again with each."""
    out, before, last = [], 0, 0
    for t, samples in way:
        if samples < last:
            before += last
        last = samples
        out.append((t, float((before + samples) * sample)))
    return out


def at(curve: list[tuple[float, float]], t: float) -> float:
    """A curve's value at time t, between its points in a straight line."""
    for (t0, v0), (t1, v1) in zip(curve, curve[1:]):
        if t0 <= t <= t1 and t1 > t0:
            return v0 + (v1 - v0) * (t - t0) / (t1 - t0)
    return curve[-1][1] if t >= curve[-1][0] else curve[0][1]
