"""The numbers of loader.metrics(), for experiment trackers."""

from __future__ import annotations

from typing import Any, Protocol

from ..job import Job


class Loop(Protocol):
    """A training loop's measurements in one epoch. Times are in seconds."""

    epoch: int | None  # None: unknown
    batches: int  # received
    loop_wait_seconds: float
    busy_seconds: float
    bad: int  # samples that bad= leaves out

    @property
    def jobs(self) -> list[Job]: ...

    @property
    def own_samples(self) -> int | None: ...


def metrics(loop: Loop) -> dict[str, float]:
    """The metrics of one epoch of a training loop. It leaves out what is not known."""
    seconds, samples = max(loop.loop_wait_seconds + loop.busy_seconds, 1e-9), loop.own_samples
    found: dict[str, float | None] = {
        "epoch": loop.epoch,
        "batch": loop.batches,
        "wait_share": loop.loop_wait_seconds / seconds,
        "wait_seconds": loop.loop_wait_seconds,
        "batches_per_s": loop.batches / seconds,
        "samples_per_s": None if samples is None else samples / seconds,
        "bad_samples": loop.bad or None,
    }
    entries = [entry for job in loop.jobs if (entry := entry_of(job, job.recent_stats())) is not None]
    if entries:
        found |= _of_server(entries, None if samples is None else samples / seconds)
    return {f"lcache/{name}": value for name, value in found.items() if value is not None}


def _of_server(entries: list[dict[str, Any]], rate: float | None) -> dict[str, float | None]:
    """The metrics that only the servers know. rate: samples per second of this loop, None if unknown."""

    def total(name: str) -> float:
        return float(sum(entry.get(name) or 0 for entry in entries))

    requested, delivered = total("hits_epoch") + total("misses_epoch"), total("samples_delivered")
    ready = [entry["readiness"] for entry in entries if entry.get("readiness") is not None]
    return {
        "mb_per_s": rate * total("bytes_delivered") / delivered / 1e6 if rate is not None and delivered else None,
        "hit_share": total("hits_epoch") / requested if requested else None,
        "ready_share": min(ready) if ready else None,
        "source_mb": total("source_bytes_epoch") / 1e6,
    }


def entry_of(job: Job, document: dict[str, Any] | None) -> dict[str, Any] | None:
    """The entry of a job in a status document, with the kept bytes, which are the cache's and in the first entry. None: it has none."""
    entries = (document or {}).get("jobs") or []
    own = next((entry for entry in entries if entry.get("id") == job.token and not entry.get("ended")), entries[0] if entries else None)
    return None if own is None else {**own, "kept_bytes": entries[0].get("kept_bytes", 0)}
