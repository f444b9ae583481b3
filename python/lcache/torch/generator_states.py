"""The states that a sampler's own generators have when each epoch's first batch is drawn.

They are those that torch's would have if every earlier epoch had run to its end, unless somebody else has set the generators
meanwhile. Before an epoch a DataLoader may have drawn its base seed from one of them; with persistent workers, before the first one only.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch

from .sampler_copy import Generators, base_seed, bounded, clone, quiet, same


class States:
    def __init__(self, subject: Callable[[], Any]) -> None:
        self._subject = subject
        self._base: list[bool] = []  # which generators the loader draws its base seed from
        self.persistent = False  # the loader draws one base seed, not one an epoch
        self._chain: dict[int, list[Any]] = {}  # the states when each epoch's first batch is drawn
        self._left: list[Any] | None = None  # as the last epoch left them, or as they were found
        self._iterators = 0  # made since the last epoch began
        self._begun: list[Any] = []  # when the first batch of the epoch that is being read was drawn

    def bind(self, generator: Any) -> None:
        """The generator that the loader draws its base seed from."""
        self._base = [g is generator for g in Generators(self._subject())]

    def iterated(self, generators: Generators) -> None:
        """An iterator is made."""
        self._iterators += 1
        if self._left is None:
            self._left = generators.states()

    def leave(self, generators: Generators) -> None:
        """A batch was drawn: so far the generators are no one else's doing."""
        self._left = generators.states()

    def begin(self, generators: Generators, number: int) -> None:
        """Sets the generators to an epoch's beginning."""
        self._look(generators, number)
        generators.restore(self.start(number))

    def began(self, generators: Generators) -> None:
        self._begun, self._iterators = generators.states(), 0

    def foresaw(self, number: int, generators: Generators) -> None:
        """A copy has run through the epoch before that."""
        if not self.persistent:
            self.draw_base(generators)
        self._chain[number] = generators.states()

    def put(self, generators: Generators, epoch: int, current: bool) -> None:
        """Brings a copy's generators to an epoch's beginning; current: it is the one that is being read."""
        if current:
            generators.restore(self._begun)
            return
        if not self._chain:
            if self._left is not None:
                generators.restore(self._left)
            self.draw_base(generators)
            self._chain = {0: generators.states()}
        generators.restore(self.start(epoch))

    def draw_base(self, generators: Generators) -> None:
        for g, drawn in zip(generators, self._base):
            if drawn and isinstance(g, torch.Generator):
                base_seed(g)

    def start(self, number: int) -> list[Any]:
        """The states when an epoch's first batch is drawn: by running copies through the epochs before it."""
        at = max((e for e in self._chain if e <= number), default=min(self._chain))
        if at < number:
            with quiet():
                twin = clone(self._subject())
                generators = Generators(twin)
                generators.restore(self._chain[at])
                for e in range(at, number):
                    for _ in bounded(twin):
                        pass
                    self.foresaw(e + 1, generators)
        for e in [e for e in self._chain if 0 < e < number - 1]:
            del self._chain[e]
        return self._chain.get(number, self._chain[at])

    def _look(self, generators: Generators, number: int) -> None:
        """Compares the generators' states with those that the last epoch left: all that may have happened since is what loaders draw."""
        now, draws = generators.states(), self._draws(generators)
        base = [bool(d) for d in draws] if draws is not None else [False] * len(now)
        new = len(self._base) != len(base) or any(d and not b for d, b in zip(base, self._base))
        self._base = [d or b for d, b in itertools.zip_longest(base, self._base[: len(base)], fillvalue=False)]
        if draws is not None and max(draws) > 1:  # iterators were made of which nothing was asked: they are no epochs
            assert self._left is not None
            generators.restore(self._left)
            self.draw_base(generators)
            now = generators.states()
        if not self._chain:
            self._chain = {0: now}
        elif draws is None and not same(now, self._chain.get(number)) or draws is not None and new:
            self._chain = {number: now}  # somebody set them, and their word counts; or it shows only now that the loader draws

    def _draws(self, generators: Generators) -> list[int] | None:
        """How many base seeds were drawn from each generator since the last epoch left it; None if that can't be all."""
        assert self._left is not None
        try:
            with quiet():
                twins = Generators(clone(self._subject()))
        except Exception:
            return None
        twins.restore(self._left)
        found = []
        for g, now in zip(twins, generators.states()):
            for draws in range(self._iterators + 1):
                if same([twins.state(g)], [now]):
                    found.append(draws)
                    break
                if isinstance(g, torch.Generator):
                    base_seed(g)
            else:
                return None
        return found
