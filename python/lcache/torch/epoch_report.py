"""What one epoch of a training loop was like: a line of INFO at its end, and warnings, each once."""

from __future__ import annotations

import logging
import time
from typing import Any

from ..errors import Error

_log = logging.getLogger("lcache")
_LEAST = 5.0  # seconds: shorter epochs say nothing about what bounds them
_EVERY = 1.0  # seconds between two reports to the server


class Report:
    def __init__(self, course: Any, loader: Any) -> None:
        self._course = course
        self._workers: int = getattr(loader, "num_workers", 0)
        self._began = time.perf_counter()
        self._left = self._began  # when the loop went on with its last batch
        self.loop_wait_seconds = 0.0  # the loop blocked in next
        self.busy_seconds = 0.0  # the loop was busy with a batch
        self._told = (self._began, 0.0, 0.0)  # when the server was told last, and what of the two it knows
        self._jobs: list[Any] | None = None
        self._bytes: int | None = None

    def got(self, asked: float, now: float) -> None:
        if self._jobs is None:
            self._start()
        self.loop_wait_seconds += now - asked
        self.busy_seconds += asked - self._left
        self._left = now
        if now - self._told[0] >= _EVERY:
            self._tell(now)

    def _start(self) -> None:
        """At the first batch: the server is there for sure."""
        route = self._course.route if self._course is not None else None
        self._jobs = [leaf.job for leaf in route.leaves] if route is not None else []
        self._bytes = self._status().get("bytes_delivered")

    def _tell(self, now: float) -> None:
        """The server is told what is new."""
        _, wait, busy = self._told
        self._told = now, self.loop_wait_seconds, self.busy_seconds
        wait, busy = self.loop_wait_seconds - wait, self.busy_seconds - busy
        for job in self._jobs or []:
            job.report(self._course.epoch, self._course.place[1], loop_wait=wait, loop=wait + busy, workers=self._workers)

    def _status(self) -> dict[str, Any]:
        try:
            return self._jobs[0].stats()["jobs"][0] if self._jobs else {}
        except (Error, KeyError, IndexError):
            return {}

    def end(self, asked: float) -> None:
        """The epoch is over, as was found when one more batch was asked for."""
        now = time.perf_counter()
        self.busy_seconds += asked - self._left
        seconds = now - self._began
        if self._course is None:
            return
        self._tell(now)
        said = [f"epoch {self._course.epoch}: {seconds:.3g} s" if seconds < 10 else f"epoch {self._course.epoch}: {seconds:.0f} s"]
        said.append(f"loop waited {100 * self.loop_wait_seconds / max(seconds, 1e-9):.1f} %")
        status = self._status()
        if self._bytes is not None and "bytes_delivered" in status:
            said.append(f"{(status['bytes_delivered'] - self._bytes) / 1e6 / seconds:.0f} MB/s")
            self._warn(status, seconds)
        if self._course.exact is not None:
            digest = self._course.digest(self._course.epoch) if _log.isEnabledFor(logging.INFO) else None
            said.append("not as foreseen" if not self._course.exact else f"exact {digest[:4]}…" if digest else "exact")
        _log.info("%s", ", ".join(said))

    def _warn(self, status: dict[str, Any], seconds: float) -> None:
        kept, whole = status.get("kept_bytes", 0), status.get("dataset_bytes", 0)
        if kept < whole:
            self._course.once("budget", f"the cache keeps {kept / 1e9:.3g} of {whole / 1e9:.3g} GB: {100 * (1 - kept / whole):.0f} % of the bytes are read from the source "
                              "in every epoch; more disk space (budget=) would help")
        if seconds >= _LEAST and self.loop_wait_seconds < 0.02 * seconds and self._course.epoch > 0:
            self._course.once("consumer", "the training loop is the slowest part: it hardly waits for data, lcache cannot make this faster", logging.INFO)
