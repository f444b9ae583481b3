"""The Markdown that bench-records prints: medians (lowest–highest) over rounds, and ratios that are taken within a round."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from pathlib import Path

Rounds = list[dict[str, float]]  # {way: MB/s} of each round

WAYS = (
    ("lcache arrow", "lcache, Arrow, two lines of PyTorch, 0 workers", "yes"),
    ("lcache parquet", "lcache, Parquet, the same", "yes"),
    ("lcache arrow, first", "lcache, Arrow, first epoch of a server", "yes"),
    ("lcache parquet, first", "lcache, Parquet, first epoch of a server", "yes"),
    ("map, workers", "`datasets` map-style, {workers} workers", "yes"),
    ("map, threads", "`datasets` map-style, 32 threads", "yes"),
    ("iterable arrow", "`datasets` iterable, Arrow, shuffle buffer, {workers} workers", "no"),
    ("iterable parquet", "`datasets` iterable, Parquet (streaming), the same", "no"),
    ("lance", "Lance, `take` of batches, 4 in flight", "yes"),
)
PEERS = (("map, workers", 7, 3), ("map, threads", 7, 3), ("iterable arrow", 3, 2), ("iterable parquet", 3, 2), ("lance", None, None))
WORDS = {"16KB": "16 KB", "100KB": "100 KB", "tokens": "4 KB tokens"}


def median(values: list[float]) -> float:
    return statistics.median(values)


def spread(values: list[float], form: str = "{:.0f}") -> str:
    """The median, and the lowest and highest if there are several."""
    middle = form.format(median(values))
    return middle if len(values) == 1 else f"{middle} ({form.format(min(values))}–{form.format(max(values))})"


def rate(value: float) -> str:
    return "{:.0f}" if value >= 100 else "{:.1f}"


def cell(rounds: Rounds | None, way: str) -> str:
    values = [r[way] for r in rounds or [] if way in r]
    return spread(values, rate(median(values))) if values else "–"


def ratio(rounds: Rounds | None, ours: str, theirs: str) -> str:
    values = [r[ours] / r[theirs] for r in rounds or [] if ours in r and theirs in r]
    return spread(values, "{:.2f}" if median(values) < 2 else "{:.1f}") if values else "–"


def table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(r) + " |" for r in [head, ["---"] * len(head), *rows]) + "\n"


def conditions(quick: bool, rounds: int, workers: int, buffer: int, python: str, root: Path) -> str:
    """When, where and with which releases."""
    code = "import datasets, lance, torch, sys; print(f'datasets {datasets.__version__}, Lance {lance.__version__}, torch {torch.__version__.split(\"+\")[0]}')"
    releases = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=root, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    load = " ".join(f"{x:.1f}" for x in os.getloadavg())
    rough = "A dry run with a fifth of the samples: only its shape means something. " if quick else ""
    return (
        f"{rough}Conditions: {time.strftime('%Y-%m-%d %H:%M')}, `scripts/bench-records`, commit {commit}, {os.cpu_count()} CPUs, load {load} at its start; {releases}; the limited volume, read-ahead 128 KB, "
        f"memory for a third of the set; at most {rounds} rounds in turn, each epoch cold; iterables have buffers of {buffer:,} rows, in {workers} workers together. "
        "MB/s, medians (lowest–highest); *exact* means a full shuffle.\n"
    )


def text(results: dict[str, Rounds], workers: int = 4) -> str:
    out, small, large = [], results.get("16KB"), results.get("100KB")
    if any("lance" in r for r in [*(small or []), *(large or [])]):  # else only ingest was measured
        rows = [[words.format(workers=workers), exact, cell(small, way), cell(large, way)] for way, words, exact in WAYS]
        out.append(table(["epoch", "exact", "60,000 × 16 KB", "10,000 × 100 KB"], rows))
        rows = []
        for kind in ("arrow", "parquet"):
            for peer, at16, at100 in PEERS:
                name = next(words for way, words, _ in WAYS if way == peer).format(workers=workers)
                goal = f"≥ {at16}, ≥ {at100}" if at16 else "–"
                rows.append([f"{kind.capitalize()} ÷ {name}", ratio(small, f"lcache {kind}", peer), ratio(large, f"lcache {kind}", peer), goal])
        out.append(table(["steady epoch of lcache, relative", "16 KB", "100 KB", "target"], rows))
    rows = []
    for name, rounds in results.items():
        for kind in ("arrow", "parquet", "tokens"):
            if f"cat {kind}" in rounds[0]:
                what = "tokens, 4 KB" if kind == "tokens" else f"{kind.capitalize()}, {WORDS[name]}"
                rows.append([what, cell(rounds, f"cat {kind}"), cell(rounds, f"ingest {kind}"), ratio(rounds, f"ingest {kind}", f"cat {kind}")])
    out.append(table(["files", "`cat` to a file, and `sync`", "`ingest`", "ratio (target ≥ 0.9)"], rows))
    tokens = results.get("tokens")
    if tokens and "memmap" in tokens[0]:
        rows = [["lcache, `bin:`, `decode=\"array\"`, 0 workers", cell(tokens, "lcache tokens")], ["`numpy.memmap`, 4 workers", cell(tokens, "memmap")]]
        rows.append(["ratio (target ≥ 30)", ratio(tokens, "lcache tokens", "memmap")])
        out.append(table(["4 KB records of tokens, an epoch in random order", "MB/s"], rows))
    out.append("`cached(ds)` compared with `ds`: `scripts/bench-cached` measures it.\n")
    return "\n".join(out)
