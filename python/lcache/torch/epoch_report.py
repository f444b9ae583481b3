"""Reports on a training loop's epochs: times for the server's status, a log line at INFO when an epoch's last batch is received, and warnings, each once."""

from __future__ import annotations

import logging
import os
import time
from typing import Any

from ..errors import Error, printable
from ..job import Job
from . import waiting
from ._order.order_ahead import OrderAhead
from .loop_metrics import entry_of

_log = logging.getLogger("lcache")
_LEAST = 5.0  # seconds: a shorter epoch does not show the bottleneck
_EVERY = 1.0  # seconds between two reports to the server


class EpochReport:
    """The report on one epoch of one training loop. All times are seconds of time.perf_counter."""

    def __init__(self, order_ahead: OrderAhead | None, loader: Any) -> None:
        """order_ahead is None for a loader without batches of indices, which has no report."""
        self._order_ahead = order_ahead
        self._batch_sampler = getattr(loader, "batch_sampler", None)
        self.batches = 0  # batches that the loop received
        self.epoch: int | None = None  # None: unknown, or no batch was received yet
        self.bad = 0  # samples that bad= leaves out
        self._workers: int = getattr(loader, "num_workers", 0)
        self._persistent: bool = getattr(loader, "persistent_workers", False)
        self._began = time.perf_counter()
        self._received = self._began  # the time when the loop received its last batch
        self.loop_wait_seconds = 0.0  # the time that the loop was blocked in next()
        self.busy_seconds = 0.0  # the time that the loop worked on batches
        self._first_wait = 0.0  # the part of loop_wait_seconds for the first batch
        self._reported = (self._began, 0.0, 0.0)  # the time of the last report to the server, and the two sums at that time
        self._jobs: list[Job] | None = None  # None: no batch was received yet
        self._logged = False  # the epoch's line was logged

    def note_batch(self, asked: float, now: float) -> None:
        """Notes that the loop requested a batch at the time `asked`, and received it now."""
        if self._jobs is None:
            self._start()
            self._first_wait = now - asked
        self.batches += 1
        self.loop_wait_seconds += now - asked
        self.busy_seconds += asked - self._received
        self._received = now
        if now - self._reported[0] >= _EVERY:
            self._report(now)

    def leave_out(self, since: float, until: float) -> None:
        """Excludes a time from all sums, in which the training loop got its batches from elsewhere."""
        reported, wait, busy = self._reported
        gap = until - since
        self._began, self._received, self._reported = self._began + gap, self._received + gap, (reported + gap, wait, busy)

    def _start(self) -> None:
        """Called at the first batch, when the server is certainly running."""
        self._jobs = self._order_ahead.jobs if self._order_ahead is not None else []
        if self._order_ahead is not None:
            self.epoch, left_out = self._order_ahead.epoch, self._order_ahead.left_out
            self.bad = left_out.samples if left_out is not None else 0
        self._send(0.0, 0.0)  # at once, so that the status names this process and not one of its workers

    def _report(self, now: float) -> None:
        """Reports the times since the last report to the servers."""
        _, wait, busy = self._reported
        self._reported = now, self.loop_wait_seconds, self.busy_seconds
        self._send(self.loop_wait_seconds - wait, self.busy_seconds - busy)

    def _send(self, wait: float, busy: float) -> None:
        for job in self._jobs or []:
            assert self._order_ahead is not None
            job.report(self._order_ahead.epoch, self._order_ahead.world_rank[1], loop_wait=wait, loop=wait + busy, workers=self._workers)

    def _status(self) -> dict[str, Any]:
        """The loop's job in the status document of the first of its servers; empty if that can't be read."""
        if not self._jobs:
            return {}
        try:
            return entry_of(self._jobs[0], self._jobs[0].stats()) or {}
        except Error:
            return {}

    def note_last(self) -> None:
        """Logs the epoch's line if the loop has received the last batch, because it may not request one more."""
        if self._order_ahead is not None and self.batches == self._order_ahead.batches:
            self._log(time.perf_counter())

    def end(self, asked: float) -> None:
        """Ends the epoch: the loop requested one more batch and got none."""
        now = time.perf_counter()
        self.busy_seconds += asked - self._received
        if self._order_ahead is None:
            return
        if self._logged:
            self._report(now)
        else:
            self._log(now)

    def _log(self, now: float) -> None:
        """Logs the epoch's line, and warnings."""
        ahead = self._order_ahead
        assert ahead is not None
        self._logged = True
        self._report(now)
        seconds = now - self._began
        words = [f"{seconds:.3g} s" if seconds < 10 else f"{seconds:.0f} s"]
        words.append(f"loop waited {100 * self.loop_wait_seconds / max(seconds, 1e-9):.1f} %")
        status = self._status()
        own = self._own_bytes(status)
        if own is not None:
            words.append(f"{own / 1e6 / seconds:.0f} MB/s")
            self._warn(status, seconds)
        if ahead.exact is not None:
            digest = ahead.served_digest() if _log.isEnabledFor(logging.INFO) else None
            words.append("not as predicted" if not ahead.exact else f"exact {digest[:4]}…" if digest else "exact")
        if self.bad:
            words.append(f"{self.bad} bad samples left out" if self.bad > 1 else "1 bad sample left out")
        name = " · ".join(filter(None, (ahead.name, f"epoch {ahead.epoch}")))
        _log.info("%s: %s", printable(name), ", ".join(words))

    def _own_bytes(self, status: dict[str, Any]) -> float | None:
        """The bytes of the samples that this loop received; None if the server's status can't be read.

        The server counts the deliveries to all ranks and processes of the job. So the loop's own samples are counted here, and multiplied with the mean size
        of a delivered sample, which follows from the status.
        """
        delivered, samples, own = status.get("bytes_delivered"), status.get("samples_delivered"), self.own_samples
        return delivered / samples * own if delivered is not None and samples and own is not None else None

    @property
    def jobs(self) -> list[Job]:
        """The loop's job at each of its servers."""
        return self._jobs or []

    @property
    def own_samples(self) -> int | None:
        """The number of samples that the loop received; None if its batches have no common size."""
        size = getattr(self._batch_sampler, "batch_size", None)
        if not isinstance(size, int):
            return None
        most = self.batches * size
        if self._order_ahead is None or getattr(self._batch_sampler, "drop_last", False):
            return most
        try:
            return min(most, len(self._batch_sampler.sampler) - self._order_ahead.skipped * size)  # type: ignore[union-attr]
        except (AttributeError, TypeError):
            return most  # the last batch may have been smaller

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
        if seconds >= _LEAST and self.loop_wait_seconds > waiting.SHARE * seconds:
            loops = int(os.environ.get("LOCAL_WORLD_SIZE", "")) if os.environ.get("LOCAL_WORLD_SIZE", "").isdigit() else 1
            waits = waiting.Waits(self._first_wait, self.loop_wait_seconds, self.busy_seconds, self._workers, self._persistent, loops)
            change = waiting.advice(waits, status)
            if change is not None:
                share = f"the training loop waited {100 * self.loop_wait_seconds / seconds:.0f} % of epoch {ahead.epoch} for data: {change}"
                ahead.once("waits", printable(f"{ahead.name}: {share}" if ahead.name else share))
        if seconds >= _LEAST and self.loop_wait_seconds < 0.02 * seconds and ahead.epoch > 0:
            ahead.once("consumer", "the training loop is the bottleneck: it hardly waits for data, so lcache cannot make it faster", logging.INFO)
