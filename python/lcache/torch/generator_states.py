"""The states of a sampler's own generators when each epoch's first batch is drawn.

They are the states that torch's sampler would have if every earlier epoch had run to its end. If the program sets the generators between epochs,
its states count instead. Before an epoch a DataLoader may have drawn its base seed from one of the generators: before the first epoch only, if
its workers are persistent.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch

from .known_samplers import known_sampler
from .sampler_copy import Generators, bounded, copy_sampler, draw_base_seed, preserved_random_states, same_states


class GeneratorStates:
    """The states of one batch sampler. Every `generators` argument is Generators of that batch sampler or of a copy."""

    def __init__(self, subject: Callable[[], Any]) -> None:
        """subject returns the batch sampler."""
        self._subject = subject
        self.persistent = False  # the loader draws one base seed in all, not one in each epoch
        self._gives_base_seed: list[bool] = []  # for each generator, whether the loader draws its base seed from it
        self._starts: dict[int, list[Any]] = {}  # by epoch, the states when its first batch is drawn
        self._left: list[Any] | None = None  # the states that the last epoch left; before any epoch, those that were found
        self._iterators = 0  # made since the last epoch began
        self._loaded = False  # the current epoch was restored in its middle, so that no state follows from an epoch's beginning
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
        """Sets the generators to the beginning of an epoch."""
        self._compare(generators, epoch)
        generators.restore(self.start(epoch))

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

    def prepare(self, generators: Generators, epoch: int, current: bool) -> None:
        """Sets a copy's generators to the beginning of an epoch. current: the epoch is the one that is being read."""
        if current:
            generators.restore(self._current_start)
            return
        if not self._starts:
            if self._left is not None:
                generators.restore(self._left)
            self._draw_base_seeds(generators)
            self._starts = {0: generators.states()}
        generators.restore(self.start(epoch))

    def start(self, epoch: int) -> list[Any]:
        """The states when an epoch's first batch is drawn. Runs copies through earlier epochs if need be."""
        at = max((e for e in self._starts if e <= epoch), default=min(self._starts))
        if at < epoch:
            self._run_through(at, epoch)
        for e in [e for e in self._starts if 0 < e < epoch - 1]:
            del self._starts[e]
        return self._starts.get(epoch, self._starts[at])

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
        with preserved_random_states():
            twin = copy_sampler(self._subject())
            generators = Generators(twin)
            generators.restore(self._starts[first])
            for e in range(first, end):
                for _ in bounded(twin):
                    pass
                self.note_predicted(e + 1, generators)

    def _draw_base_seeds(self, generators: Generators) -> None:
        for generator, drawn in zip(generators, self._gives_base_seed):
            if drawn and isinstance(generator, torch.Generator):
                draw_base_seed(generator)

    def _compare(self, generators: Generators, epoch: int) -> None:
        """Compares the generators with the states that the last epoch left. Only draws of base seeds may lie between.

        Otherwise the program has set the generators, and the predicted states give way to the present ones.
        """
        now, draws = generators.states(), self._draws(generators)
        drawn = [bool(d) for d in draws] if draws is not None else [False] * len(now)
        known = self._gives_base_seed
        found_new = len(known) != len(drawn) or any(d and not k for d, k in zip(drawn, known))
        self._gives_base_seed = [d or k for d, k in itertools.zip_longest(drawn, known[: len(drawn)], fillvalue=False)]
        if draws is not None and max(draws) > 1:  # some iterators drew a base seed and no batch: they are no epochs
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
        if known_sampler(self._subject()) is not None:
            twins = Generators.of([torch.Generator() for _ in generators])
        else:
            try:
                with preserved_random_states():
                    twins = Generators(copy_sampler(self._subject()))
            except Exception:  # noqa: BLE001  any sampler's code may run here
                return None
        twins.restore(self._left)
        found = []
        for twin, now in zip(twins, generators.states()):
            for draws in range(self._iterators + 1):
                if same_states([twins.state(twin)], [now]):
                    found.append(draws)
                    break
                if isinstance(twin, torch.Generator):
                    draw_base_seed(twin)
            else:
                return None
        return found
