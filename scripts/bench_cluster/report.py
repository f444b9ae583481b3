"""What bench-cluster prints: a table for docs/figures.md, and how long each scene took."""

from __future__ import annotations

import statistics
from typing import Any

# The scenes that take turns, and their functions in scenes.
IN_ROUNDS = {"cluster": "clustered", "alone": "alone", "one machine": "one", "half": "half", "copies": "copies", "forming": "forming", "idle": "idle"}

# Which names of --only need which scene.
SCENES: dict[str, tuple[str, ...]] = {
    "cluster": ("source", "hits", "static", "four-epochs", "kill", "stop", "network"),
    "alone": ("source", "four-epochs"),
    "one machine": ("static",),
    "half": ("hits",),
    "copies": ("copies",),
    "forming": ("formed",),
    "idle": ("idle",),
    "transport": ("transport",),
    "64 members": ("members",),
    "without a cluster": ("alone-pays-nothing",),
}
NAMES = ("source", "hits", "static", "four-epochs", "kill", "stop", "network", "copies", "formed", "idle", "members", "transport", "alone-pays-nothing")

# What is printed, its value or the two values whose ratio within a round it is, its target, and its digits.
ROWS: tuple[tuple[str, str | tuple[str, str], str, int], ...] = (
    ("source bytes of epoch 0, of the set", "source, epoch 0", "≤ 1.02", 3),
    ("the same, three machines alone", "source alone, epoch 0", "", 3),
    ("source bytes of epochs 1 to 3, of the set", "source, later", "0", 4),
    ("source bytes of epoch 1, three machines alone", "source alone, epoch 1", "", 2),
    ("source bytes of epoch 2, three machines alone", "source alone, epoch 2", "", 2),
    ("source bytes of epoch 3, three machines alone", "source alone, epoch 3", "", 2),
    ("hits after epoch 0, disks of 1.05 of the set", "hits, 1.05", "≥ 0.98", 4),
    ("hits, disks of half of the set", "hits, 0.5", "≥ 0.48", 4),
    ("copies that each machine keeps then (T)", "copies, 0.5", "", 3),
    ("three machines, static, MB/s", "static, cluster, MB/s", "", 0),
    ("one machine alone that holds everything, static, MB/s", "static, one, MB/s", "", 0),
    ("three machines ÷ one", ("static, cluster, MB/s", "static, one, MB/s"), "≥ 2.5", 2),
    ("four epochs bound by the source, cluster, s", "four epochs, cluster, s", "", 1),
    ("four epochs bound by the source, three machines alone, s", "four epochs, alone, s", "", 1),
    ("four epochs, cluster ÷ alone", ("four epochs, cluster, s", "four epochs, alone, s"), "≤ 0.6", 3),
    ("epoch 0 of the cluster ÷ what lcache plan says", ("epoch 0, s", "plan, epoch 0, s"), "0.85 – 1.15", 3),
    ("later epochs of the cluster ÷ what lcache plan says", ("epoch, s", "plan, epoch, s"), "0.85 – 1.15", 3),
    ("longest wait for a batch without a fault, s", "longest wait, calm, s", "", 2),
    ("kill -9 of a machine: longest wait beyond that, s", "kill: wait beyond, s", "≤ 0.5", 2),
    ("SIGSTOP of a server for 3 s: longest wait beyond that, s", "stop: wait beyond, s", "≤ 1.5", 2),
    ("network bytes of samples in an epoch ÷ V·(h − T/n)", "network, samples", "≤ 1.03", 3),
    ("the same, all bytes of the interface", "network, kernel", "", 3),
    ("copies that each machine keeps (T)", "copies", "", 3),
    ("room for everything: network bytes of samples in epoch 1 ÷ simulated", "copies, epoch 1", "≤ 1.05", 3),
    ("room for everything: the same in epoch 3", "copies, epoch 3", "≤ 1.05", 3),
    ("room for everything: the same in epoch 6", "copies, epoch 6", "≤ 1.05", 3),
    ("room for everything: copies that each machine keeps (T)", "copies, T", "", 3),
    ("room for everything: copies not stored at first, because the disk was busy", "copies, not stored", "", 3),
    ("bytes of a parcel, mean, KiB", "parcel, KiB", "≥ 256", 0),
    ("samples that came too late, in four epochs", "late samples", "", 0),
    ("formed after the start of the last of three servers, s", "formed, s", "≤ 1.5", 2),
    ("formed, slowest, s", "formed, worst, s", "", 2),
    ("formed after all three accept clients, s", "formed after all serve, s", "", 2),
    ("idle memory of one of three beyond a server alone, MiB", "idle memory, MiB", "≤ 20", 1),
    ("idle CPU of one of three, % of a core", "idle CPU, %", "≤ 0.5", 2),
    ("idle CPU of a server alone, % of a core", "idle CPU alone, %", "", 2),
    ("64 members on one core: roster after the last, s", "64 formed, s", "≤ 15", 1),
    ("64 members: a death is seen by all, s", "64 death seen, s", "≤ 12", 1),
    ("64 members: idle CPU of one, % of a core", "64 idle CPU, %", "≤ 0.5", 2),
    ("transport, both ends, CPU-s/GB", "transport plain, CPU-s/GB", "≤ 1.1", 2),
    ("transport with TLS, both ends, CPU-s/GB", "transport TLS, CPU-s/GB", "≤ 2.0", 2),
    ("transport, GB/s", "transport plain, GB/s", "≥ 0.9", 2),
    ("transport with TLS, GB/s", "transport TLS, GB/s", "", 2),
    ("without --cluster, static: MB/s ÷ the program before", "static: MB/s, ratio", "0.95 – 1.05", 3),
    ("without --cluster, static: CPU-s/GB ÷ the program before", "static: CPU, ratio", "≤ 1.03", 3),
    ("without --cluster, log: MB/s ÷ the program before", "log: MB/s, ratio", "0.95 – 1.05", 3),
    ("without --cluster, log: CPU-s/GB ÷ the program before", "log: CPU, ratio", "≤ 1.03", 3),
    ("the program is larger by, MB", "program, MB", "≤ 9", 1),
)  # fmt: skip


def holds(target: str, value: float) -> bool:
    """Whether a value meets a target as in ROWS."""
    if target.startswith("≤"):
        return value <= float(target[1:])
    if target.startswith("≥"):
        return value >= float(target[1:])
    if "–" in target:
        least, most = (float(x) for x in target.split("–"))
        return least <= value <= most
    return value == float(target)


def values_of(values: dict[str, list[float]], row: str | tuple[str, str]) -> list[float]:
    if isinstance(row, str):
        return values.get(row, [])
    return [a / b for a, b in zip(*(values.get(r, []) for r in row))]


def text(facts: dict[str, Any], values: dict[str, list[float]], seconds: dict[str, tuple[int, float]]) -> str:
    lines = [
        ("A dry run: these figures mean nothing.\n\n" if facts["quick"] else "")
        + f"Conditions: commit {facts['commit']}, `scripts/bench-cluster`, {facts['minutes']} minutes on {facts['cpus']} CPUs (load before: {facts['load']}); "
        f"{facts['bytes'] / 1e9:.2f} GB of samples of {facts['size']:,} bytes, {facts['memory'] / 1e6:.0f} MB of memory for each server. "
        f"Medians of {facts['rounds']} rounds (lowest–highest)"
        + (f"; without `--cluster`: {facts['pairs']} pairs for each layout with commit {facts['before']}" if facts["before"] else "")
        + ".\n",
        "| what | measured | target | met |",
        "|---|---|---|---|",
    ]
    for what, row, target, digits in ROWS:
        if not (found := values_of(values, row)):
            continue
        median = statistics.median(found)
        spread = f" ({min(found):.{digits}f}–{max(found):.{digits}f})" if len(found) > 1 else ""
        met = ("yes" if holds(target, median) else "**no**") if target else ""
        lines.append(f"| {what} | {median:.{digits}f}{spread} | {target} | {met} |")
    took = ", ".join(f"{name} {n} × {s:.0f} s" for name, (n, s) in seconds.items())
    return "\n".join([*lines, "", f"Time of the scenes: {took}."])
