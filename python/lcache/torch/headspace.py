"""Measures how fast a training loop would be if data cost nothing: headspace() feeds it batches that are already in memory."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

# Batches that are kept in memory.
KEPT = 10

# A rate above this share of the best one can't be improved noticeably.
_NEAR = 0.95


@dataclass(frozen=True)
class HeadspaceReport:
    """The result of headspace(), in batches per second; None: not measured. str() of it is one sentence."""

    best: float | None
    real: float | None

    def __str__(self) -> str:
        if self.best is None:
            return "nothing measured: iterate over the headspace first, for more batches than it keeps in memory"
        text = f"your loop takes {_rate(self.best)} batches/s at best"
        if self.real is None:
            return f"{text}: no data path makes it faster"
        text += f"; the loader gives {_rate(self.real)}"
        if self.real >= _NEAR * self.best:
            return f"{text}: change nothing"
        return f"{text}: a faster data path could make it {self.best / self.real:.1f} times as fast"


class Headspace:
    """An iterable that replaces a loader. Made by headspace()."""

    def __init__(self, loader: Any, batches: int = KEPT) -> None:
        if batches < 1:
            raise ValueError(f"headspace needs at least 1 batch in memory, not {batches}")
        self._loader = loader
        self._batches = batches
        self._memory = Meter()
        self._given = Meter()

    def __iter__(self) -> Iterator[Any]:
        """One epoch: the loader's first batches, repeated until there are as many as the loader has."""
        kept = []
        source = iter(self._loader)
        for batch in itertools.islice(source, self._batches):
            kept.append(batch)
            yield batch
        del source  # workers stop here
        if kept:
            yield from self._memory.over(itertools.islice(itertools.cycle(kept), max(len(self) - len(kept), 0)))

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._loader, name)

    def real(self) -> Iterator[Any]:
        """One epoch of the loader itself, measured in the same way, for comparison."""
        return self._given.over(itertools.islice(iter(self._loader), len(self)))

    def report(self) -> HeadspaceReport:
        """The result so far."""
        return HeadspaceReport(self._memory.rate(), self._given.rate())


class Meter:
    """Counts batches, and the time from each to the next: the loop's work on it, and the wait for the next one."""

    def __init__(self) -> None:
        self.batches = 0
        self.seconds = 0.0

    def over(self, batches: Iterable[Any]) -> Iterator[Any]:
        last = None
        for batch in batches:
            now = time.perf_counter()
            if last is not None:
                self.batches += 1
                self.seconds += now - last
            last = now
            yield batch

    def rate(self) -> float | None:
        return self.batches / self.seconds if self.seconds > 0 else None


def _rate(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def headspace(loader: Any, batches: int = KEPT) -> Headspace:
    """Replaces a loader, and feeds batches that are already in memory. It measures the most that any data path could achieve in this program.

    loader is any loader with a length. In each epoch its first `batches` batches are read and kept. Then they are repeated until there are as many as the
    loader has. The model learns nothing useful from them. A loop that only queues work for a GPU should wait for the GPU at the end of an epoch.
    """
    return Headspace(loader, batches)
