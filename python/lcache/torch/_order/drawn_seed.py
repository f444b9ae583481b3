"""The seed that torch's RandomSampler draws from torch's default generator, if it has no generator of its own.

torch draws such a seed at every epoch's first batch, so no later epoch could be predicted. lcache keeps the first seed: epoch e has
the order that torch has with seed + e. It also draws the later seeds but does not use them, so that all other code that draws from
the default generator gets the same numbers as without lcache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.utils.data

from ...errors import Error
from . import ranks
from .known_samplers import known_sampler
from .run_ahead import RunAhead
from .sampler_copy import RandomStates, copy_sampler, preserved_random_states

_END = object()


class DrawnSeed:
    """The seed of one batch sampler's orders."""

    def __init__(self, run: RunAhead | None = None) -> None:
        """run: runs a copy of the batch sampler, for sampler()."""
        self._run = run
        self.seed: int | None = None  # None: not yet drawn
        self._checked: Any = None  # the sampler that _sufficient belongs to
        self._sufficient = False  # the sampler's order follows from one drawn seed

    def sampler(self, batches: Any) -> Any:
        """The RandomSampler below a batch sampler that draws the seed; None if the order does not follow from one drawn seed."""
        found = _without_generator(batches)
        if found is not None and found is not self._checked:
            self._checked, self._sufficient = found, known_sampler(batches) is not None or self._order_follows_from_seed()
        return found if found is not None and self._sufficient else None

    def _order_follows_from_seed(self) -> bool:
        assert self._run is not None
        try:
            return bool(self._run.answer(_order_follows_from_seed))
        except Exception:  # noqa: BLE001  any sampler's code may run here
            return False  # a sampler that can't be run in advance can't be predicted either

    def begin(self, batches: Any, epoch: int) -> tuple[Any, torch.Generator] | None:
        """Draws a seed as torch does before an epoch's first batch. Returns the sampler, and the generator with the epoch's order."""
        sampler = self.sampler(batches)
        if sampler is None:
            return None
        number = _draw()
        if self.seed is None:
            self.seed = number
        return sampler, self.generator(epoch)

    def prepare(self, twin: Any, epoch: int) -> None:
        """Sets a copy of a batch sampler to an epoch's beginning. Without a seed the copy draws one, as torch's sampler does."""
        if self.seed is not None:
            *_, last = ranks.chain(twin)
            last.generator = self.generator(epoch)

    def foreseen(self, epoch: int) -> DrawnSeed:
        """This seed. If it is not yet drawn, the one that the epoch will draw unless other code draws first."""
        found = DrawnSeed()
        found.seed = self.seed if self.seed is not None else _peek() - epoch
        return found

    def take(self, seed: Any) -> None:
        """Replaces the seed. None: the next drawn seed is kept."""
        if seed is not None and not (isinstance(seed, int) and 0 <= seed < 1 << 63):
            raise Error(f"load the loader's state: its seed {seed!r:.40} is not one that torch draws; the state is damaged, or not lcache's")
        self.seed = seed

    def generator(self, epoch: int) -> torch.Generator:
        """A generator with an epoch's order. The seed must be known."""
        assert self.seed is not None
        return torch.Generator().manual_seed(self.seed + epoch)


class Lending:
    """Gives a sampler the generator with its epoch's order until the sampler has begun to draw. Only then is the seed drawn, as in torch."""

    def __init__(self, seed: DrawnSeed, sampler: Any, epoch: int) -> None:
        """sampler is the result of DrawnSeed.sampler. None: it gets no generator."""
        self._seed, self._sampler, self._epoch = seed, sampler, epoch

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Within it the sampler has the generator, unless it has already begun to draw."""
        if self._sampler is None:
            yield
            return
        generator = self._seed.foreseen(self._epoch).generator(self._epoch)
        before = generator.get_state()
        self._sampler.generator = generator
        try:
            yield
        finally:
            self._sampler.generator = None
            if not torch.equal(before, generator.get_state()):
                self._draw()

    def _draw(self) -> None:
        self._sampler = None
        number = _draw()
        if self._seed.seed is None:
            self._seed.seed = number - self._epoch

    def batches(self, iterator: Iterator[Any]) -> Iterator[Any]:
        """Yields an iterator's batches."""
        with self.lent():
            first = next(iterator, _END)
        if self._sampler is not None:
            self._draw()  # an order of one sample needs no generator
        if first is not _END:
            yield first
            yield from iterator


def with_generator(lent: tuple[Any, torch.Generator] | None, batches: Iterable[Any]) -> Iterator[Any]:
    """Yields batches. The sampler in lent has the generator while the first batch is drawn, which determines the epoch's order."""
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
    """A seed as RandomSampler draws it."""
    return int(torch.empty((), dtype=torch.int64).random_().item())


def _peek() -> int:
    """The seed that _draw would return."""
    with preserved_random_states():
        return _draw()


def _without_generator(batches: Any) -> Any:
    *_, last = ranks.chain(batches)
    return last if isinstance(last, torch.utils.data.RandomSampler) and last.generator is None else None


def _order_follows_from_seed(batches: Any) -> bool:
    """Whether a first batch draws only one seed from the global generators, and is determined by that seed. batches is a copy."""
    states, twin = RandomStates(), copy_sampler(batches)
    first = next(iter(batches), None)
    after, elsewhere = torch.get_rng_state(), states.changed_elsewhere()
    states.restore()
    seed = _draw()
    if elsewhere or not torch.equal(after, torch.get_rng_state()):
        return False
    _without_generator(twin).generator = torch.Generator().manual_seed(seed)
    return bool(next(iter(twin), None) == first) and torch.equal(after, torch.get_rng_state())
