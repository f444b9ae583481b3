"""What `lcache run --headspace` does to loaders: batches from memory for the second half of an epoch, and notes on both halves."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from typing import Any, cast

from ..errors import Error
from .headspace import KEPT, Meter

# The file that `lcache run --headspace` reads when its command has ended. It names the file to all processes of the command.
_NOTES = "LCACHE_HEADSPACE_NOTES"


class HalvedLoop:
    """An iterator in the place of a training loop's own. Made by halved()."""

    def __init__(self, loop: Any, batches: Iterator[Any]) -> None:
        self._loop = loop
        self._batches = batches

    def __iter__(self) -> HalvedLoop:
        return self

    def __next__(self) -> Any:
        return next(self._batches)

    def __len__(self) -> int:
        return len(self._loop)

    def __getattr__(self, name: str) -> Any:
        if name == "_loop":
            raise AttributeError(name)
        return getattr(self._loop, name)


def halved(loop: Any, loader: Any) -> Iterator[Any]:
    """The iterator that a training loop gets: `loop` itself, unless `lcache run --headspace` runs this process and the loader has a length.

    Then the first half of the epoch is the loader's own. The second half is fed from memory. What the loader still has is read and dropped at the end, so that
    the server reads every epoch whole, in the order that it knows.
    """
    path = os.environ.get(_NOTES)
    if not path:
        return cast(Iterator[Any], loop)
    try:
        length = len(loader)
    except TypeError:
        return cast(Iterator[Any], loop)
    return HalvedLoop(loop, _halves(loop, length, path, getattr(loader, "batch_sampler", None)))


def _who(batch_sampler: Any) -> dict[str, Any]:
    """What tells this loader from others, and its ranks from each other: known after the first batch. A loader without batches of indices has no job."""
    ahead: Any = getattr(batch_sampler, "order_ahead", None)
    try:
        return {"job": ahead.token, "rank": ahead.world_rank[1]}
    except (AttributeError, Error):
        return {"job": None, "rank": 0}


def _halves(loop: Any, length: int, path: str, batch_sampler: Any) -> Iterator[Any]:
    real, memory = Meter(), Meter()
    kept: list[Any] = []
    try:
        for batch in real.over(itertools.islice(loop, length - length // 2)):
            if len(kept) < KEPT:
                kept.append(batch)
            yield batch
        if kept:
            with loop.paused():
                yield from memory.over(itertools.islice(itertools.cycle(kept), length // 2))
                kept.clear()
                for _ in loop:
                    pass
    finally:
        note = {**_who(batch_sampler), "real": [real.batches, real.seconds], "best": [memory.batches, memory.seconds]}
        with open(path, "a", encoding="utf-8") as notes:
            notes.write(json.dumps(note) + "\n")
