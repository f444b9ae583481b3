"""Reports on a training loop's epochs: times for the server's status, a line of INFO at the end of an epoch, and warnings, each once."""

from __future__ import annotations

import logging
import time
from typing import Any

from ..errors import Error
from ..job import Job
from .order_ahead import OrderAhead

_log = logging.getLogger("lcache")
_LEAST = 5.0  # seconds: a shorter epoch shows nothing about its slowest part
_EVERY = 1.0  # seconds between two reports to the server


class EpochReport:
    """The report on one epoch of one training loop. All times are seconds of time.perf_counter."""

    def __init__(self, order_ahead: OrderAhead | None, loader: Any) -> None:
        """order_ahead is None for a loader without batches of indices, which gets no report."""
        self._order_ahead = order_ahead
        self._workers: int = getattr(loader, "num_workers", 0)
        self._began = time.perf_counter()
        self._received = self._began  # when the loop received its last batch
        self.loop_wait_seconds = 0.0  # the loop was blocked in next
        self.busy_seconds = 0.0  # the loop worked on a batch
        self._reported = (self._began, 0.0, 0.0)  # when the server was last given a report, with which sums of the two
        self._jobs: list[Job] | None = None  # None: no batch was received yet
        self._bytes_before: int | None = None  # delivered by the server; None: unknown

    def note_batch(self, asked: float, now: float) -> None:
        """Notes that the loop asked for a batch, and received it now."""
        if self._jobs is None:
            self._start()
        self.loop_wait_seconds += now - asked
        self.busy_seconds += asked - self._received
        self._received = now
        if now - self._reported[0] >= _EVERY:
            self._report(now)

    def _start(self) -> None:
        """At the first batch, when the server certainly runs."""
        translation = self._order_ahead.translation if self._order_ahead is not None else None
        self._jobs = [leaf.job for leaf in translation.leaves] if translation is not None else []
        self._bytes_before = self._status().get("bytes_delivered")

    def _report(self, now: float) -> None:
        """Gives the servers the times since the last report."""
        _, wait, busy = self._reported
        self._reported = now, self.loop_wait_seconds, self.busy_seconds
        wait, busy = self.loop_wait_seconds - wait, self.busy_seconds - busy
        for job in self._jobs or []:
            assert self._order_ahead is not None
            job.report(self._order_ahead.epoch, self._order_ahead.world_rank[1], loop_wait=wait, loop=wait + busy, workers=self._workers)

    def _status(self) -> dict[str, Any]:
        """The first job's part of the server's status document; empty if it can't be read."""
        try:
            job: dict[str, Any] = self._jobs[0].stats()["jobs"][0] if self._jobs else {}
            return job
        except (Error, KeyError, IndexError):
            return {}

    def end(self, asked: float) -> None:
        """Ends the epoch. The loop asked for one batch more and got none."""
        now = time.perf_counter()
        self.busy_seconds += asked - self._received
        seconds = now - self._began
        ahead = self._order_ahead
        if ahead is None:
            return
        self._report(now)
        words = [f"epoch {ahead.epoch}: {seconds:.3g} s" if seconds < 10 else f"epoch {ahead.epoch}: {seconds:.0f} s"]
        words.append(f"loop waited {100 * self.loop_wait_seconds / max(seconds, 1e-9):.1f} %")
        status = self._status()
        if self._bytes_before is not None and "bytes_delivered" in status:
            words.append(f"{(status['bytes_delivered'] - self._bytes_before) / 1e6 / seconds:.0f} MB/s")
            self._warn(status, seconds)
        if ahead.exact is not None:
            digest = ahead.digest(ahead.epoch) if _log.isEnabledFor(logging.INFO) else None
            words.append("not as predicted" if not ahead.exact else f"exact {digest[:4]}…" if digest else "exact")
        _log.info("%s", ", ".join(words))

    def _warn(self, status: dict[str, Any], seconds: float) -> None:
        ahead = self._order_ahead
        assert ahead is not None
        kept, whole = status.get("kept_bytes", 0), status.get("dataset_bytes", 0)
        if kept < whole:
            ahead.once(
                "budget",
                f"the cache keeps {kept / 1e9:.3g} of {whole / 1e9:.3g} GB: {100 * (1 - kept / whole):.0f} % of the bytes are read from the source in "
                "every epoch; more disk space (budget=) would help",
            )
        if seconds >= _LEAST and self.loop_wait_seconds < 0.02 * seconds and ahead.epoch > 0:
            ahead.once("consumer", "the training loop is the slowest part: it hardly waits for data, lcache cannot make this faster", logging.INFO)
