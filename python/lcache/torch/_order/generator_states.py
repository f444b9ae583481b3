"""The states of a sampler's own generators when each epoch's first batch is drawn.

They are the states that torch's sampler would have if every earlier epoch had run to its end. If the program sets the generators between epochs,
its states count instead. Before an epoch a DataLoader may have drawn its base seed from one of the generators: before the first epoch only, if
its workers are persistent.
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
    """The states of one batch sampler. Every `generators` argument is Generators of that batch sampler or of a copy."""

    def __init__(self, subject: Callable[[], Any], run: RunAhead) -> None:
        """subject returns the batch sampler."""
        self._subject, self._run = subject, run
        self.persistent = False  # the loader draws one base seed in all, not one in each epoch
        self._gives_base_seed: list[bool] = []  # for each generator, whether the loader draws its base seed from it
        self._starts: dict[int, list[Any]] = {}  # by epoch, the states when its first batch is drawn
        self._left: list[Any] | None = None  # the states after the last epoch; before any epoch, the initial ones
        self._iterators = 0  # made since the last epoch began
        self._loaded = False  # the current epoch was restored in its middle, so that no state follows from an epoch's beginning
        self.repeated = False  # an epoch began without the base seed that the loader draws before each
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
        """Records the states after a batch was drawn. Any later change is not the batch sampler's."""
        self._left = generators.states()

    def note_loaded(self, generators: Generators) -> None:
        """Records the states that were restored in the middle of an epoch. The next epoch begins with the states that this one leaves."""
        self._left, self._loaded = generators.states(), True

    def begin(self, generators: Generators, epoch: int) -> None:
        """Sets the generators to the beginning of an epoch. They stay as they are if that is not known."""
        self._compare(generators, epoch)
        start = self.start(epoch)
        if start is not None:
            generators.restore(start)

    def note_begun(self, generators: Generators) -> None:
        """Records the states at the beginning of the current epoch."""
        self._current_start, self._iterators = generators.states(), 0

    def note_predicted(self, epoch: int, generators: Generators) -> None:
        """Records the states before an epoch, after a copy has run through the epoch before it."""
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
        """The states at the beginning of an epoch. current: the epoch is the one that is being read. Error if they can't be known."""
        if current:
            return self._current_start
        if not self._starts:
            generators = Generators(self._subject())
            left = generators.states() if self._left is None else self._left
            self._starts = {0: [self._after_base_seed(*each) for each in itertools.zip_longest(generators, left, self._gives_base_seed[: len(left)])]}
        start: list[Any] | None = self.start(epoch)
        if start is None:
            raise Error(f"the states of the sampler's generators at the beginning of epoch {epoch} are not known")
        return start

    def start(self, epoch: int) -> list[Any] | None:
        """The states when an epoch's first batch is drawn. Runs a copy through earlier epochs if need be. None: that can't be done."""
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
        """Records the states at the beginnings of epochs up to `end`, from those of epoch `first` on."""
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
        """The states at the beginnings of epochs behind epoch `first`, up to `end`, by running a copy of the sampler."""
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
        """The state of a generator after the loader has drawn a base seed, if it draws that from this generator."""
        twin = _twin(generator, state) if gives else None
        if twin is None:
            return state
        draw_base_seed(twin)
        return twin.get_state()

    def _compare(self, generators: Generators, epoch: int) -> None:
        """Compares the generators with the states that the last epoch left. Only draws of base seeds may lie between.

        Otherwise the program has set the generators, and the predicted states give way to the present ones.
        """
        now, draws = generators.states(), self._draws(generators)
        expected = [d for d, gives in zip(draws or (), self._gives_base_seed) if gives and self._starts]
        self.repeated = not self.persistent and expected == [0]
        drawn = [bool(d) for d in draws] if draws is not None else [False] * len(now)
        known = self._gives_base_seed
        found_new = len(known) != len(drawn) or any(d and not k for d, k in zip(drawn, known))
        self._gives_base_seed = [d or k for d, k in itertools.zip_longest(drawn, known[: len(drawn)], fillvalue=False)]
        if draws is not None and max(draws) > 1:  # some iterators drew a base seed and no batch: they are not epochs
            assert self._left is not None
            generators.restore(self._left)
            self._draw_base_seeds(generators)
            now = generators.states()
        if self._loaded:
            self._starts, self._loaded = {epoch: now}, False
        elif not self._starts:
            self._starts = {0: now}
        elif (found_new if draws is not None else not same_states(now, self._starts.get(epoch))):
            self._starts = {epoch: now}  # the program set the generators, or this is the first sign that the loader draws from them

    def _draws(self, generators: Generators) -> list[int] | None:
        """How many base seeds were drawn from each generator since the last epoch left it. None if something else has changed them."""
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
    """A generator of its own in that state. None for one that no base seed is drawn from."""
    if not isinstance(generator, torch.Generator):
        return None
    twin = torch.Generator(device=generator.device)
    twin.set_state(state)
    return twin
