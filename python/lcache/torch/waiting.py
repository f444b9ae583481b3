"""The warning about a training loop that waits for data: why, and what to change. internal/verdict has the same sentences for `lcache run`."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

SHARE = 0.1  # of an epoch's time: a loop that waits longer is warned about
_LEAST_DECODING = 0.3  # of the time of the workers: less does not explain waits
_FEW_MISSES = 0.02  # of an epoch's samples: fewer from the source do not explain waits


class Waits(NamedTuple):
    """How a training loop waited in one epoch. Times are in seconds."""

    first: float  # for the first batch
    total: float
    busy: float  # the loop worked
    workers: int
    persistent: bool  # the workers stay from epoch to epoch
    loops: int  # training loops on this machine


def advice(waits: Waits, entry: Mapping[str, Any]) -> str | None:
    """The reason and the change, from the waits and the job's entry in the status document. None: the reason is not known, or nothing can be changed."""
    bound = entry.get("bound_by")
    if bound == "source":
        return _of_source(entry)
    if bound in ("decode", "disk", "peer") and waits.workers and not waits.persistent and waits.first > waits.total / 2:
        return f"{waits.first:.1f} s of it for the first batch, while the workers started; change persistent_workers=False → True"
    if bound == "decode":
        return _of_decoding(waits, entry)
    if bound == "disk" and entry.get("divergences"):
        differ = f"{entry['divergences']} requests differ from the planned order, which the log was sorted for"
        return f"{differ}; change the recipe and seed to the training's, or give none"
    if bound == "disk":
        return "the disk seems to be the bottleneck (lcache doctor --cache DIR measures it); change to a faster disk, or to several: cache=[A, B]"
    if bound == "peer":
        return "the network or the other machines are the bottleneck; a larger budget= keeps more samples on this machine"
    return None


def _of_source(entry: Mapping[str, Any]) -> str | None:
    misses, hits = entry.get("misses_epoch", 0), entry.get("hits_epoch", 0)
    if misses <= _FEW_MISSES * (misses + hits):
        return None
    kept, whole = entry.get("kept_bytes", 0), entry.get("dataset_bytes", 0)
    share = f"the source is the bottleneck: {100 * misses / (misses + hits):.0f} % of the samples came from there"
    if kept < whole:
        return f"{share}, because the cache keeps {kept / 1e9:.3g} of {whole / 1e9:.3g} GB; change budget= to more than {whole / 1e9:.3g} GB"
    if len(entry.get("epochs_done", ())) <= 1:
        return None  # the epoch that fills the cache
    return f"{share}, although the cache keeps all of them; look for lines with ! in lcache status"


def _of_decoding(waits: Waits, entry: Mapping[str, Any]) -> str | None:
    share = min((entry.get("decode_seconds") or 0.0) / max((entry.get("loop_seconds") or 0.0) * max(entry.get("loop_workers", 0), 1), 1e-9), 1.0)
    if share < _LEAST_DECODING:
        return None
    takes, cpus = f"decoding is the bottleneck, with {100 * share:.0f} % of ", len(os.sched_getaffinity(0))
    wanted = min(math.ceil(max(waits.workers, 1) * (waits.total + waits.busy) / max(waits.busy, 1e-9)), cpus // max(waits.loops, 1))
    if not waits.workers:
        return f"{takes}the time, in the loop itself; change num_workers=0 → {max(wanted, 1)}"
    if wanted > waits.workers:
        return f"{takes}the workers' time; change num_workers={waits.workers} → {wanted}"
    return f"{takes}the time of {waits.workers} workers on {cpus} CPUs; more CPUs, smaller samples, or a decoder of whole batches (decode_batch=) would help"
