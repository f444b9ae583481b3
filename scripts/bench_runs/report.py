"""What bench-runs says at its end: medians over rounds, and ratios that are taken within a round, where the machine was in one mood."""

from __future__ import annotations

import statistics
from typing import Any

Round = dict[str, Any]  # {"plain": MB/s, "device": MB/s, binary: {phase: [an epoch's figures]}}


def _speeds(epochs: list[dict[str, Any]]) -> list[float]:
    return [e["mb_s"] for e in epochs]


def _median(values: list[float]) -> float | None:
    return round(statistics.median(values), 3) if values else None


def ratios(one: Round, name: str, baseline: str) -> dict[str, float]:
    """Returns the ratios of one round for one binary: the ratios that the targets name, and all speeds divided by the first binary's."""
    mine, out = one[name], {}
    first = _speeds(mine.get("first", []))
    steady = statistics.median(first[1:]) if len(first) > 1 else None
    plain, device = one.get("plain"), one.get("device")
    if plain and first:
        out["first run, epoch 0 ÷ plain"] = first[0] / plain
    for phase, word in (("second", "second run"), ("again", "same seed again")):
        speeds = _speeds(mine.get(phase, []))
        for e, speed in enumerate(speeds):
            if steady:
                out[f"{word}, epoch {e} ÷ steady"] = speed / steady
            if plain:
                out[f"{word}, epoch {e} ÷ plain"] = speed / plain
    if device and steady:
        out["steady ÷ device at random"] = steady / device
    for e, speed in enumerate(_speeds(mine.get("static", []))):
        if device:
            out[f"static, epoch {e} ÷ device at random"] = speed / device
    for job in mine.get("jobs", []):
        if job.get("together") and plain:
            out[f"{job['name']} ÷ plain"] = job["mb_s"] / plain
        if job.get("together") and steady:
            out[f"{job['name']} ÷ steady"] = job["mb_s"] / steady
    if same := mine.get("same"):
        out[f"device reads of {same[1]['name'].split(',')[0]} ÷ one's"] = same[1]["device_read"] / same[0]["device_read"]
    for figure in mine.get("validation", []):
        if "longer" in figure:
            out["validation of a tenth, part of an epoch that it costs"] = figure["longer"]
    if name != baseline:
        for phase, epochs in mine.items():
            for e, (a, b) in enumerate(zip(epochs, one[baseline].get(phase, []))):
                out[f"{_word(phase, e, a)} ÷ {baseline}'s"] = a["mb_s"] / b["mb_s"]
                if "cpu_s_gb" in a and "cpu_s_gb" in b:
                    out[f"{_word(phase, e, a)}, CPU ÷ {baseline}'s"] = a["cpu_s_gb"] / b["cpu_s_gb"]
    return out


def _word(phase: str, epoch: int, figure: dict[str, Any]) -> str:
    return str(figure.get("name") or f"{phase}, epoch {epoch}")


def summary(rounds: list[Round], names: list[str]) -> dict[str, Any]:
    """Medians of speeds and of ratios, over all rounds."""
    out: dict[str, Any] = {"rounds": len(rounds)}
    for key in ("plain", "device"):
        if values := [r[key] for r in rounds if key in r]:
            out[key] = _median(values)
    for name in names:
        mine: dict[str, Any] = {}
        for phase in rounds[0][name] if rounds else ():
            columns = list(zip(*(r[name][phase] for r in rounds)))
            mine[phase] = [
                {"name": _word(phase, e, c[0])}
                | {k: _median([x[k] for x in c]) for k in ("mb_s", "cpu_s_gb", "read", "written") if all(x.get(k) is not None for x in c)}
                for e, c in enumerate(columns)
            ]
        each = [ratios(r, name, names[0]) for r in rounds]
        mine["ratios"] = {k: _median([e[k] for e in each if k in e]) for k in dict.fromkeys(k for e in each for k in e)}
        out[name] = mine
    return out


def text(result: dict[str, Any], names: list[str]) -> str:
    """The summary for people."""
    lines = []
    for key, word in (("plain", "plain files, 32 threads"), ("device", f"device, random reads, 32 in flight ({result.get('device_by', '')})")):
        if key in result:
            lines.append(f"{word}: {result[key]:.0f} MB/s")
    for name in names:
        mine = result[name]
        lines.append(f"\n{name}")
        for phase, figures in mine.items():
            if phase == "ratios":
                continue
            for f in figures:
                more = f", CPU-s/GB {f['cpu_s_gb']:.2f}" if "cpu_s_gb" in f else ""
                moved = f", device read {f['read']:.2f} and wrote {f['written']:.2f} of the set" if "read" in f else ""
                lines.append(f"  {f['name']:<34} {f['mb_s']:>6.0f} MB/s{more}{moved}")
        lines += [f"  {k:<46} {v:.2f}" for k, v in mine["ratios"].items()]
    return "\n".join(lines)
