"""What bench-cluster measures, scene by scene. Each scene leaves nothing behind, and returns values by row; rounds of all scenes take turns."""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from bench_runs.stage import run

from .machines import Bench, Failed, Machine

ROOT = Path(__file__).resolve().parent.parent.parent
EPOCHS = 4  # of the runs whose wall time is compared
STOPPED = 3.0  # seconds of SIGSTOP
Values = dict[str, float]


def clustered(bench: Bench) -> Values:
    """Three empty machines as a cluster: four epochs bound by the source, then epochs at the pace of a training, in which a server is stopped and killed."""
    o, machines, out = bench.o, bench.machines("cluster"), {}
    bench.make(machines, 3, int(1.05 * o.bytes / 3), prefill=False, together=True)
    bench.start(machines, together=True)
    bench.source.limit(o.source_rate)
    epochs = [bench.epoch(machines, e) for e in range(EPOCHS)]
    out["four epochs, cluster, s"] = sum(e["seconds"] for e in epochs)
    out["source, epoch 0"] = epochs[0]["source"] / o.bytes
    out["source, later"] = sum(e["source"] for e in epochs[1:]) / o.bytes
    out["hits, 1.05"] = min(share(e) for e in epochs[1:])
    out["static, cluster, MB/s"] = statistics.median(e["bytes"] / e["seconds"] for e in epochs[1:]) / 1e6
    out["late samples"] = sum(e["peers_late_samples"] for e in epochs)
    copies = kept_copies(machines)
    expected = o.bytes * (min(1, copies) - copies / len(machines))
    last = epochs[-1]
    out["epoch 0, s"], out["epoch, s"] = epochs[0]["seconds"], statistics.median(e["seconds"] for e in epochs[1:])
    out |= planned(bench, int(1.05 * o.bytes / 3))
    out["copies"] = copies
    out["network, samples"] = last["peers_in_bytes"] / expected
    out["network, kernel"] = last["network"] / expected
    out["parcel, KiB"] = last["peers_out_bytes"] / max(last["peers_out_parcels"], 1) / 1024
    bench.note(f"cluster: {times(epochs)} s, each machine keeps {copies:.3f} of its share")
    if o.wants("kill", "stop"):
        disturbed(bench, machines, out)
    bench.clear(machines)
    return out


def planned(bench: Bench, budget: int) -> Values:
    """What lcache plan says of this stage: the first epoch and a later one, in s."""
    o, (operations, rate) = bench.o, bench.on.caps or (0, 0)
    facts = {
        "facts": "off", "nodes": 3, "samples": o.samples, "bytes": o.bytes, "batch-size": o.batch_size, "epochs": EPOCHS, "budget": budget, "memory": o.memory,
        "read-bw": rate, "write-bw": rate, "read-iops": operations, "write-iops": operations, "source-bw": int(o.source_rate), "source-node-bw": "unlimited",
        "source-ops": "unlimited", "network": "unlimited", "consumer": "unlimited",
    }  # fmt: skip
    command = [bench.program, "plan", "--json", *(f"--{name}={value}" for name, value in facts.items())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise Failed(f"plan: {done.stderr.strip()}")
    row = next(p for p in json.loads(done.stdout)["policies"] if p["policy"] == "peer_static")
    bench.note(f"plan: peer_static, {row['first_s']:.1f} s, then {row['epoch_s']:.1f} s, bound by the {row['bound_by']}")
    return {"plan, epoch 0, s": row["first_s"], "plan, epoch, s": row["epoch_s"]}


def copies(bench: Bench) -> Values:
    """Three empty machines as a cluster, each with room for everything: what they still send each other. A machine has the samples whose home it is, and a
    copy of each other sample that it has delivered, as in the simulator (docs/planning.md): of the samples that are new to it, two thirds come from others."""
    o, machines, out = bench.o, bench.machines("copies"), {}
    bench.make(machines, 3, None, prefill=False, together=True)
    bench.start(machines, together=True)
    bench.source.limit(o.source_rate)
    delivered: list[set[int]] = [set() for _ in machines]
    for e in range(7):
        got = bench.epoch(machines, e)
        new = [set(numbers) - before for numbers, before in zip(got["numbers"], delivered)]
        delivered = [before | more for before, more in zip(delivered, new)]
        simulated = sum(map(len, new)) * o.size * 2 / 3
        bench.note(f"copies: epoch {e}: {got['peers_in_bytes'] / o.bytes:.4f} of the set between machines, simulated {simulated / o.bytes:.4f}")
        out[f"copies, epoch {e}"] = got["peers_in_bytes"] / simulated
    out["copies, T"] = kept_copies(machines)
    copied = sum(map(len, delivered)) - o.samples
    out["copies, not stored"] = sum(m.stats()["cluster"]["skipped_samples"] for m in machines) / copied
    bench.clear(machines)
    return out


def kept_copies(machines: list[Machine]) -> float:
    """T, the mean over machines: how many copies of its share each keeps."""
    return statistics.mean(m.stats()["cluster"]["peers"][0]["copies"] for m in machines)


def times(epochs: list[dict[str, Any]]) -> str:
    return ", ".join(f"{e['seconds']:.1f}" for e in epochs)


def share(epoch: dict[str, Any]) -> float:
    return float(epoch["hits"] / (epoch["hits"] + epoch["misses"]))


def disturbed(bench: Bench, machines: list[Machine], out: Values) -> None:
    """An epoch at the pace of a training without a fault, one in which a server is stopped, and one in which a machine is killed."""
    o, victim, others = bench.o, machines[2], machines[:2]
    calm = bench.epoch(machines, EPOCHS, o.pace)
    usual = max(max(w for _, w in waits[1:]) for waits in calm["waits"][:2])  # without the first batch of the epoch
    out["longest wait, calm, s"] = usual
    for epoch, fault in ((EPOCHS + 1, "stop"), (EPOCHS + 2, "kill")):
        for m in machines:
            m.read(epoch, 3, o.pace)
        time.sleep(calm["seconds"] * o.draw.uniform(0.3, 0.6))
        sent = bench.source.sent()
        at = time.monotonic()
        assert victim.server
        if fault == "stop":
            victim.server.popen.send_signal(signal.SIGSTOP)
            time.sleep(STOPPED)
            victim.server.popen.send_signal(signal.SIGCONT)
            victim.done()
        else:
            victim.kill()
        got = [m.done() for m in others]
        longest = max(w for g in got for asked, w in g["waits"] if asked + w > at)
        out[f"{fault}: wait beyond, s"] = longest - usual
        out[f"{fault}: source"] = (bench.source.sent() - sent) / o.bytes
        bench.note(f"{fault}: the longest wait was {longest:.2f} s, without it {usual:.2f} s")


def alone(bench: Bench) -> Values:
    """The same three machines without a cluster, each with room for everything: the same four epochs."""
    o, machines = bench.o, bench.machines("alone")
    bench.make(machines, 3, None, prefill=False, together=False)
    bench.start(machines, together=False)
    bench.source.limit(o.source_rate)
    epochs = [bench.epoch(machines, e) for e in range(EPOCHS)]
    bench.note(f"alone: {times(epochs)} s")
    bench.clear(machines)
    out = {"four epochs, alone, s": sum(e["seconds"] for e in epochs)}
    return out | {f"source alone, epoch {i}": e["source"] / o.bytes for i, e in enumerate(epochs)}


def one(bench: Bench) -> Values:
    """One machine alone that holds everything and reads everything."""
    machines = bench.machines("one", 1)
    bench.make(machines, 1, None, prefill=True, together=False)
    bench.start(machines, together=False)
    epochs = [bench.epoch(machines, e) for e in range(2)]
    bench.clear(machines)
    if sum(e["source"] for e in epochs):
        raise Failed("one machine alone does not hold everything")
    return {"static, one, MB/s": statistics.median(e["bytes"] / e["seconds"] for e in epochs) / 1e6}


def half(bench: Bench) -> Values:
    """A cluster that holds half of the set."""
    machines = bench.machines("half")
    bench.make(machines, 3, int(0.5 * bench.o.bytes / 3), prefill=True, together=True)
    bench.start(machines, together=True)
    bench.source.limit(bench.o.source_rate)
    epochs = [bench.epoch(machines, e) for e in range(2)]
    copies = kept_copies(machines)
    bench.note(f"half: hits {', '.join(f'{share(e):.4f}' for e in epochs)}, each machine keeps {copies:.3f} of its share")
    bench.clear(machines)
    return {"hits, 0.5": share(epochs[1]), "copies, 0.5": copies}


def forming(bench: Bench) -> Values:
    """Servers with listed caches: how long until three have one roster, after the start of the last, and after the last can be reached."""
    machines = bench.machines("forming")
    bench.make(machines, 3, int(1.05 * bench.o.bytes / 3), prefill=False, together=False)
    started, reached = [], []
    for _ in range(bench.o.formings):
        for m in machines[:2]:
            m.begin(bench.cluster(m))
        time.sleep(1)  # the first two are up, and wait for the third
        machines[2].begin(bench.cluster(machines[2]))
        began = time.monotonic()
        for m in machines:
            m.ready()
        up = time.monotonic()
        formed = bench.formed(machines, began + 60)
        started.append(formed - began)
        reached.append(max(0.0, formed - up))
        for m in machines:
            m.end()
    bench.clear(machines)
    return {"formed, s": statistics.median(started), "formed, worst, s": max(started), "formed after all serve, s": statistics.median(reached)}


def idle(bench: Bench) -> Values:
    """Three servers in a cluster, and one alone with the same cache, in which nothing happens for a minute."""
    machines, single = bench.machines("idle"), Machine(bench, 0, bench.on.volumes[0].folder / "single")
    budget = int(1.05 * bench.o.bytes / 3)
    bench.make(machines, 3, budget, prefill=False, together=False)
    bench.make([single], 3, budget, prefill=False, together=False)
    bench.start(machines, together=True)
    bench.start([single], together=False)
    before = [cpu_of(m) for m in (*machines, single)]
    time.sleep(bench.o.idle)
    busy = [cpu_of(m) - b for m, b in zip((*machines, single), before)]
    memory = [anonymous(m) for m in (*machines, single)]
    bench.clear([*machines, single])
    return {
        "idle memory, MiB": (statistics.median(memory[:3]) - memory[3]) / 2**20,
        "idle CPU, %": statistics.median(busy[:3]) / bench.o.idle * 100,
        "idle CPU alone, %": busy[3] / bench.o.idle * 100,
    }


def pid(m: Machine) -> int:
    assert m.server
    return m.server.popen.pid


def cpu_of(m: Machine) -> float:
    """CPU seconds of a server, in steps of 1 ns: those that the scheduler counts."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid(m)}/task").iterdir()) / 1e9


def anonymous(m: Machine) -> int:
    found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid(m)}/status").read_text())
    assert found
    return int(found[1]) * 1024


def go(bench: Bench, what: str, *arguments: str, within: float, env: dict[str, str] | None = None) -> str:
    """Runs go test and returns its output, also after a failed assertion: the figures are in it."""
    process = subprocess.Popen(
        [bench.o.go, "test", *arguments], cwd=ROOT, env=os.environ | (env or {}), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=within)
    except subprocess.TimeoutExpired:
        raise Failed(f"{what}: no end within {within:.0f} s") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return output


def members(bench: Bench) -> Values:
    """64 members as processes on one core, by the test of internal/cluster."""
    test = ("./internal/cluster", "-run", "^TestSixtyFourProcesses$", "-count=1", "-v", "-timeout=10m")
    output = go(bench, "64 members", *test, within=700, env={"LCACHE_IDLE": "1"})

    def worst(text: str) -> float:
        found = re.search(re.escape(text) + r": median \S+, worst (\S+) of", output)
        if not found:
            raise Failed(f"64 members: no line «{text}» in\n{output[-3000:]}")
        return seconds(found[1])

    return {
        "64 formed, s": worst("a roster of 64, after the start of the last"),
        "64 death seen, s": worst("a death is seen by all 63"),
        "64 idle CPU, %": worst("CPU time of an idle member of 63 in a minute") / 60 * 100,
    }


def seconds(text: str) -> float:
    """The seconds of a duration as Go prints it."""
    units = {"h": 3600, "m": 60, "s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
    return sum(float(n) * units[u] for n, u in re.findall(r"([\d.]+)(h|ms|m|s|µs|ns)", text))


def transport(bench: Bench) -> Values:
    """Samples over a connection of two machines, both ends in one process, by the benchmark of internal/peer."""
    output = go(bench, "transport", "./internal/peer", "-run", "^$", "-bench", "^BenchmarkFetch$/^100000_", f"-benchtime={bench.o.benchtime}", within=300)
    out = {}
    for row, encrypted in (("plain", "false"), ("TLS", "true")):
        found = re.search(rf"BenchmarkFetch/100000_bytes,_TLS_{encrypted}\S*\s+\d+\s+[\d.]+ ns/op\s+([\d.]+) MB/s\s+([\d.]+) CPU-s/GB", output)
        if not found:
            raise Failed(f"transport: no figures of {row} in\n{output[-3000:]}")
        out[f"transport {row}, CPU-s/GB"], out[f"transport {row}, GB/s"] = float(found[2]), float(found[1]) / 1000
    return out


class Programs:
    """The program of this tree and the one before the first commit of the cluster, built with the same flags."""

    def __init__(self, folder: Path, go_program: str) -> None:
        first = run("git", "-C", ROOT, "log", "--reverse", "--format=%H", "--", "internal/cluster").split()[0]
        self.commit = run("git", "-C", ROOT, "rev-parse", f"{first}^")
        before = folder / "before"
        before.mkdir()
        archive = subprocess.Popen(["git", "-C", str(ROOT), "archive", self.commit], stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", str(before)], stdin=archive.stdout, check=True, timeout=60)
        if archive.wait():
            raise Failed(f"git archive {self.commit} ended with {archive.returncode}")
        self.by_name: dict[str, tuple[str, str]] = {}
        for name, tree in (("before", before), ("now", ROOT)):
            out = folder / f"lcache-{name}"
            env = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-trimpath -buildvcs=false"}
            subprocess.run([go_program, "build", "-ldflags", "-s -w", "-o", str(out), "./cmd/lcache"], cwd=tree, env=env, check=True, timeout=900)
            self.by_name[name] = (str(out), str(tree / "python"))

    def growth(self) -> float:
        """How much larger the program is, in MB."""
        return (os.path.getsize(self.by_name["now"][0]) - os.path.getsize(self.by_name["before"][0])) / 1e6


def pays_nothing(bench: Bench, programs: Programs) -> list[Values]:
    """Pairs of both programs without a cluster, on caches in memory, so that the processor is what limits them. Each pair is one entry."""
    where = bench.on.folder / "memory"
    where.mkdir()
    run("mount", "-t", "tmpfs", "-o", "mode=700", "none", where)
    try:
        return [pair for layout in ("static", "log") for pair in pairs(bench, programs, where, layout)]
    finally:
        run("umount", where)


def pairs(bench: Bench, programs: Programs, where: Path, layout: str) -> list[Values]:
    o, machines = bench.o, {}
    bench.source.limit(0)
    for name, program in programs.by_name.items():
        machines[name] = m = Machine(bench, 0, where / name, program)
        m.filled(m.ingest(1, None, prefill=True, layout=layout))
    out = []
    for p in range(o.pairs):
        got = {}
        for name in ("before", "now") if p % 2 == 0 else ("now", "before"):
            m = machines[name]
            m.begin()
            m.ready()
            first = 3 * p
            bench.epoch([m], first)  # the memory is filled
            cpu = bench.on.cpu()
            epochs = [bench.epoch([m], first + 1 + e) for e in range(2)]
            cpu = bench.on.cpu() - cpu
            total = sum(e["bytes"] for e in epochs)
            got[name] = (total / sum(e["seconds"] for e in epochs) / 1e6, cpu / total * 1e9)
            m.end()
        (old, old_cpu), (new, new_cpu) = got["before"], got["now"]
        ratios = {"MB/s, ratio": new / old, "CPU, ratio": new_cpu / old_cpu, "MB/s": new, "CPU-s/GB": new_cpu}
        out.append({f"{layout}: {row}": value for row, value in ratios.items()})
        bench.note(f"without a cluster, {layout}, pair {p}: {old:.0f} and {new:.0f} MB/s, {old_cpu:.2f} and {new_cpu:.2f} CPU-s/GB")
    bench.clear(list(machines.values()))
    return out
