"""What one epoch of a training loop was like: a line of INFO at its end, and warnings, each once."""

from __future__ import annotations

import logging
import time
from typing import Any

from ..errors import Error

_log = logging.getLogger("lcache")
_LEAST = 5.0  # seconds: shorter epochs say nothing about what bounds them


class Report:
    def __init__(self, course: Any, loader: Any) -> None:
        self._course, self._loader = course, loader
        self._began = time.perf_counter()
        self._left = self._began  # when the loop went on with its last batch
        self.loop_wait_seconds = 0.0  # the loop blocked in next
        self.loop_seconds = 0.0  # the loop was busy with a batch
        self._job: Any = None
        self._bytes: int | None = None

    def got(self, asked: float, now: float) -> None:
        if self._bytes is None and self._job is None:
            self._start()
        self.loop_wait_seconds += now - asked
        self.loop_seconds += asked - self._left
        self._left = now

    def _start(self) -> None:
        """At the first batch: the server is there for sure."""
        route = self._course.route if self._course is not None else None
        self._job = route.leaves[0].job if route is not None and route.leaves else False
        if self._job and _log.isEnabledFor(logging.INFO):
            status = self._status()
            self._bytes = status.get("bytes_delivered")

    def _status(self) -> dict[str, Any]:
        try:
            return self._job.stats()["jobs"][0]
        except (Error, KeyError, IndexError):
            return {}

    def end(self) -> None:
        """The epoch is over."""
        seconds = time.perf_counter() - self._began
        if self._course is None:
            return
        said = [f"epoch {self._course.epoch}: {seconds:.3g} s" if seconds < 10 else f"epoch {self._course.epoch}: {seconds:.0f} s"]
        said.append(f"loop waited {100 * self.loop_wait_seconds / max(seconds, 1e-9):.1f} %")
        if self._job and self._bytes is not None:
            status = self._status()
            if "bytes_delivered" in status:
                said.append(f"{(status['bytes_delivered'] - self._bytes) / 1e6 / seconds:.0f} MB/s")
                self._warn(status, seconds)
        if self._course.exact is not None:
            digest = self._course.digest(self._course.epoch) if _log.isEnabledFor(logging.INFO) else None
            said.append("not as foreseen" if not self._course.exact else f"exact {digest[:4]}…" if digest else "exact")
        _log.info("%s", ", ".join(said))

    def _warn(self, status: dict[str, Any], seconds: float) -> None:
        kept, whole = status.get("kept_bytes", 0), status.get("dataset_bytes", 0)
        if kept < whole:
            self._course._once("budget", f"the cache keeps {kept / 1e9:.3g} of {whole / 1e9:.3g} GB: {100 * (1 - kept / whole):.0f} % of the bytes are read from the source "
                               "in every epoch; more disk space (budget=) would help")
        if seconds >= _LEAST and self.loop_wait_seconds < 0.02 * seconds and self._course.epoch > 0:
            self._course._once("consumer", "the training loop is the slowest part: it hardly waits for data, lcache cannot make this faster", logging.INFO)
