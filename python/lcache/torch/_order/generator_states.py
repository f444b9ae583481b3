"""The states of a sampler's own generators at each epoch's first batch.

They are the states that torch's sampler would have if every earlier epoch had run to its end. If the program sets the generators between epochs,
its states are used instead. A DataLoader may draw its base seed from one of the generators before each epoch, or with persistent workers before the
first epoch only.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch

from ...errors import Error
from .forked_child import ChildError
from .known_samplers import known_sampler
from .run_ahead import RunAhead
from .sampler_copy import Generators, bounded, draw_base_seed, same_states


class GeneratorStates:
    """The states of one batch sampler. Each argument `generators` is the Generators of that batch sampler or of a copy."""

    def __init__(self, subject: Callable[[], Any], run: RunAhead) -> None:
        """subject returns the batch sampler."""
        self._subject, self._run = subject, run
        self.persistent = False  # the loader draws only one base seed, not one in each epoch
        self._gives_base_seed: list[bool] = []  # for each generator, whether the loader draws its base seed from it
        self._starts: dict[int, list[Any]] = {}  # by epoch, the states when its first batch is drawn
        self._left: list[Any] | None = None  # the states after the last epoch; before any epoch, the initial ones
        self._iterators = 0  # iterators made since the last epoch began
        self._loaded = False  # the current epoch was restored in its middle, so later states do not follow from an epoch's beginning
        self.repeated = False  # an epoch began without the base seed that the loader draws before each epoch
        self._current_start: list[Any] = []  # the states when the current epoch's first batch was drawn

    def bind(self, generator: Any) -> None:
        """Sets the generator that the loader draws its base seed from."""
        self._gives_base_seed = [g is generator for g in Generators(self._subject())]

    def note_iterator(self, generators: Generators) -> None:
        """Counts an iterator over the batch sampler. Its loader may have drawn a base seed for it."""
        self._iterators += 1
        if self._left is None:
            self._left = generators.states()

    def note_drawn(self, generators: Generators) -> None:
        """Records the states after a batch was drawn. Later changes are not the batch sampler's."""
        self._left = generators.states()

    def note_loaded(self, generators: Generators) -> None:
        """Records the states that were restored in the middle of an epoch. The next epoch begins with the final states of this one."""
        self._left, self._loaded = generators.states(), True

    def begin(self, generators: Generators, epoch: int) -> None:
        """Sets the generators to the beginning of an epoch. If that is unknown, it leaves them as they are."""
        self._compare(generators, epoch)
        start = self.start(epoch)
        if start is not None:
            generators.restore(start)

    def note_begun(self, generators: Generators) -> None:
        """Records the states at the beginning of the current epoch."""
        self._current_start, self._iterators = generators.states(), 0

    def note_predicted(self, epoch: int, generators: Generators) -> None:
        """Records the states before an epoch, after a copy has run through the previous epoch."""
        if not self.persistent:
            self._draw_base_seeds(generators)
        self.note_start(epoch, generators.states())

    def note_start(self, epoch: int, states: list[Any]) -> None:
        """Records the states before an epoch."""
        self._starts[epoch] = states

    @property
    def draws_base_seed(self) -> bool:
        """Whether the loader draws a base seed from the first generator before each epoch but the first."""
        return not self.persistent and bool(self._gives_base_seed) and self._gives_base_seed[0]

    def beginning(self, epoch: int, current: bool) -> list[Any]:
        """The states at the beginning of an epoch. current: that epoch is being read. Raises Error if they are unknown."""
        if current:
            return self._current_start
        if not self._starts:
            generators = Generators(self._subject())
            left = generators.states() if self._left is None else self._left
            self._starts = {0: [self._after_base_seed(*each) for each in itertools.zip_longest(generators, left, self._gives_base_seed[: len(left)])]}
        start: list[Any] | None = self.start(epoch)
        if start is None:
            raise Error(f"find the order of epoch {epoch}: the states of the sampler's generators at its beginning are unknown")
        return start

    def start(self, epoch: int) -> list[Any] | None:
        """The states at an epoch's first batch. Runs a copy through earlier epochs if necessary. None: that is impossible."""
        at = max((e for e in self._starts if e <= epoch), default=min(self._starts))
        if at < epoch:
            try:
                self._run_through(at, epoch)
            except ChildError:
                return None
        for e in [e for e in self._starts if 0 < e < epoch - 1]:
            del self._starts[e]
        return self._starts[epoch if epoch in self._starts else at]

    def _run_through(self, first: int, end: int) -> None:
        """Records the states at the beginning of each epoch from `first` up to `end`."""
        known = known_sampler(self._subject())
        if known is not None:
            generators = Generators.of([torch.Generator()])
            generators.restore(self._starts[first])
            (generator,) = generators
            for e in range(first, end):
                for step in known.steps(0):
                    step.draw(generator)
                self.note_predicted(e + 1, generators)
            return
        starts = self._run.answer(functools.partial(self._starts_of, first, end))
        for e, found in starts.items():
            self.note_start(e, found)

    def _starts_of(self, first: int, end: int, twin: Any) -> dict[int, list[Any]]:
        """The states at the beginning of each epoch after `first`, up to `end`, found by running a copy of the sampler."""
        generators, starts = Generators(twin), {}
        generators.restore(self._starts[first])
        for e in range(first, end):
            for _ in bounded(twin):
                pass
            self.note_predicted(e + 1, generators)
            starts[e + 1] = generators.states()
        return starts

    def _draw_base_seeds(self, generators: Generators) -> None:
        for generator, drawn in zip(generators, self._gives_base_seed):
            if drawn and isinstance(generator, torch.Generator):
                draw_base_seed(generator)

    def _after_base_seed(self, generator: Any, state: Any, gives: bool | None) -> Any:
        """The state of a generator after the loader has drawn a base seed, if the loader draws it from this generator."""
        twin = _twin(generator, state) if gives else None
        if twin is None:
            return state
        draw_base_seed(twin)
        return twin.get_state()

    def _compare(self, generators: Generators, epoch: int) -> None:
        """Compares the generators with the final states of the last epoch. Only draws of base seeds may have changed them.

        Otherwise the program has set the generators, and their present states replace the predicted ones.
        """
        now, draws = generators.states(), self._draws(generators)
        expected = [d for d, gives in zip(draws or (), self._gives_base_seed) if gives and self._starts]
        self.repeated = not self.persistent and expected == [0]
        drawn = [bool(d) for d in draws] if draws is not None else [False] * len(now)
        known = self._gives_base_seed
        found_new = len(known) != len(drawn) or any(d and not k for d, k in zip(drawn, known))
        self._gives_base_seed = [d or k for d, k in itertools.zip_longest(drawn, known[: len(drawn)], fillvalue=False)]
        if draws is not None and max(draws) > 1:  # iterators that drew a base seed and no batch are not epochs
            assert self._left is not None
            generators.restore(self._left)
            self._draw_base_seeds(generators)
            now = generators.states()
        if self._loaded:
            self._starts, self._loaded = {epoch: now}, False
        elif not self._starts:
            self._starts = {0: now}
        elif (found_new if draws is not None else not same_states(now, self._starts.get(epoch))):
            self._starts = {epoch: now}  # the program set the generators, or the loader draws from them for the first time

    def _draws(self, generators: Generators) -> list[int] | None:
        """The number of base seeds drawn from each generator since the last epoch. None if other code has changed a generator."""
        assert self._left is not None
        found = []
        for generator, left, now in zip(generators, self._left, generators.states()):
            twin = _twin(generator, left)
            for draws in range(self._iterators + 1):
                if same_states([now], [left if twin is None else twin.get_state()]):
                    found.append(draws)
                    break
                if twin is None:
                    return None
                draw_base_seed(twin)
            else:
                return None
        return found


def _twin(generator: Any, state: Any) -> torch.Generator | None:
    """A new generator in that state. None for a kind that no base seed is drawn from."""
    if not isinstance(generator, torch.Generator):
        return None
    twin = torch.Generator(device=generator.device)
    twin.set_state(state)
    return twin
