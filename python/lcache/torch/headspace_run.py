"""Implements `lcache run --headspace` in loaders: the second half of an epoch gets batches from memory, and both halves are timed."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from typing import Any, cast

from ..errors import Error
from .headspace import KEPT, Meter

# The variable by which `lcache run --headspace` passes a file to all processes of its command. It reads the file when the command has ended.
_NOTES = "LCACHE_HEADSPACE_NOTES"


class HalvedLoop:
    """The iterator that a training loop gets instead of its own. Made by halved()."""

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

    In that case the first half of the epoch comes from the loader, and the second half from memory. The loader's remaining batches are read and dropped at the
    end, so that the server delivers each epoch completely, in its known order.
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
    """The loader's job and rank, known after the first batch. A loader without batches of indices has no job."""
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
