"""The seed that torch's RandomSampler draws from torch's default generator, when it has no generator of its own.

torch draws such a seed at every epoch's first batch, so that no later epoch can be foreseen. Here the first seed stays: epoch e is
the order that torch has with seed + e. Later seeds are drawn all the same, and not used, so that everything else that draws from the default
generator gets the numbers that it gets without lcache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.utils.data

from ..errors import Error
from . import ranks
from .sampler_copy import clone, quiet

_END = object()


class Drawn:
    def __init__(self) -> None:
        self.seed: int | None = None  # None: nothing was drawn yet
        self._tried: Any = None  # the sampler that _fits is of
        self._fits = False

    def sampler(self, batches: Any) -> Any:
        """The sampler that the seed is for; None if the order of a batch sampler does not follow from one."""
        found = _without_generator(batches)
        if found is not None and found is not self._tried:
            self._tried, self._fits = found, _is_seed_all(batches)
        return found if found is not None and self._fits else None

    def begin(self, batches: Any, epoch: int) -> tuple[Any, torch.Generator] | None:
        """An epoch's first batch is about to be drawn: the sampler, and the generator that gives it the epoch's order."""
        sampler = self.sampler(batches)
        if sampler is None:
            return None
        number = _draw()
        if self.seed is None:
            self.seed = number
        return sampler, self._generator(epoch)

    def put(self, twin: Any, epoch: int) -> None:
        """Brings a copy of a batch sampler, which sampler() is one for, to an epoch's beginning. Without a seed it draws one, as torch's does."""
        if self.seed is not None:
            *_, last = ranks.chain(twin)
            last.generator = self._generator(epoch)

    def take(self, seed: Any) -> None:
        """The seed is this one, whatever was drawn; None: the next one that is drawn."""
        if seed is not None and not (isinstance(seed, int) and 0 <= seed < 1 << 63):
            raise Error(f"the loader's state has seed {seed!r:.40}, which torch does not draw")
        self.seed = seed

    def _generator(self, epoch: int) -> torch.Generator:
        assert self.seed is not None
        return torch.Generator().manual_seed(self.seed + epoch)


def lend(lent: tuple[Any, torch.Generator] | None, batches: Iterable[Any]) -> Iterator[Any]:
    """batches, for whose first one the sampler has the generator: an order is made when its first batch is drawn."""
    iterator = iter(batches)
    if lent is not None:
        sampler, generator = lent
        sampler.generator = generator
        try:
            first = next(iterator, _END)
        finally:
            sampler.generator = None
        if first is _END:
            return
        yield first
    yield from iterator


def _draw() -> int:
    """The seed as RandomSampler draws it."""
    return int(torch.empty((), dtype=torch.int64).random_().item())


def _without_generator(batches: Any) -> Any:
    *_, last = ranks.chain(batches)
    return last if isinstance(last, torch.utils.data.RandomSampler) and last.generator is None else None


def _is_seed_all(batches: Any) -> bool:
    """Whether drawing a first batch draws one seed and nothing else from the global generators, and the batch follows from that seed."""
    try:
        with quiet() as guard:
            first = next(iter(clone(batches)), None)
            after, elsewhere = torch.get_rng_state(), guard.drawn_elsewhere()
            guard.restore()
            seed = _draw()
            if elsewhere or not torch.equal(after, torch.get_rng_state()):
                return False
            twin = clone(batches)
            _without_generator(twin).generator = torch.Generator().manual_seed(seed)
            return bool(next(iter(twin), None) == first) and torch.equal(after, torch.get_rng_state())
    except Exception:
        return False  # what can't be copied can't be foreseen either
