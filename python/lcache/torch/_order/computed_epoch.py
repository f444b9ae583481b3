"""An epoch of a known sampler: drawn in advance from a private generator, and yielded later as the sampler itself would."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

import torch

from ..._client.orders import Order
from .known_samplers import KnownSampler, Step, concatenated


class _Block(NamedTuple):
    """The numbers of one step, and the generator's states around it."""

    before: torch.Tensor | None
    numbers: array[int]
    after: torch.Tensor | None


class ComputedEpoch:
    """One epoch. Any thread may call draw() and finish(). Only the thread of the training loop calls batches()."""

    def __init__(self, known: KnownSampler, epoch: int, generator: torch.Generator | None) -> None:
        """epoch is the sampler's number of the epoch. generator is private to this object, and has the state at the epoch's beginning."""
        self._known, self._generator = known, generator
        self._steps, self._signature = known.steps(epoch), known.signature(epoch)
        self._blocks: list[_Block] = []
        self._order: Order | None = None
        self.start = generator.get_state() if generator is not None else None  # the generator's state at the beginning
        self.indices = array("I")  # of the whole epoch, before it is cut into batches
        self.global_digest: str | None = None  # of the order of all ranks; None: not yet computed

    def is_same_as(self, other: ComputedEpoch) -> bool:
        """Whether the other epoch has the same beginning, and therefore the same order."""
        if self._signature != other._signature or (self.start is None) != (other.start is None):
            return False
        return self.start is None or other.start is None or torch.equal(self.start, other.start)

    @property
    def order(self) -> Order:
        """The predicted batches. draw() must have been called."""
        assert self._order is not None
        return self._order

    def draw(self) -> ComputedEpoch:
        """Draws the order, but not the unused numbers that the sampler draws after its end. Raises an error for indices that are not u32."""
        if self._order is None:
            steps = list(self._steps)
            while steps and not steps[-1].length:
                steps.pop()
            self._run(len(steps))
            self.indices = self._known.indices(concatenated(block.numbers for block in self._blocks))
            self._order = self._known.order(self.indices)
        return self

    def finish(self) -> torch.Tensor | None:
        """Draws the remaining numbers, and returns the generator's final state."""
        self._run(len(self._steps))
        return self._generator.get_state() if self._generator is not None else None

    def _run(self, steps: int) -> None:
        generator = self._generator
        while len(self._blocks) < steps:
            step = self._steps[len(self._blocks)]
            before = generator.get_state() if generator is not None else None
            numbers = step.draw(generator)
            self._blocks.append(_Block(before, numbers, generator.get_state() if generator is not None else None))

    def batches(self, generator: torch.Generator | None, skip: int = 0) -> Iterator[list[int]]:
        """The epoch's batches from number `skip` on, drawn from the sampler's own generator when the sampler would draw them.

        If the generator has the state from which a step was drawn in advance, the step is not drawn again: its numbers and its final state are used.
        """
        return self._known.batches(self._taken(generator), skip)

    def _taken(self, generator: torch.Generator | None) -> Iterator[array[int]]:
        for number, step in enumerate(self._steps):
            block = self._blocks[number] if number < len(self._blocks) else None
            if block is None:
                yield step.draw(generator)
            elif generator is None or block.before is None or block.after is None:
                yield block.numbers
            elif torch.equal(generator.get_state(), block.before):
                generator.set_state(block.after)
                yield block.numbers
            else:
                yield step.draw(generator)


def private(generator: torch.Generator | None) -> torch.Generator | None:
    """A new generator in the same state."""
    return None if generator is None else at_state(generator.get_state())


def at_state(state: torch.Tensor) -> torch.Generator:
    """A new generator in that state."""
    generator = torch.Generator()
    generator.set_state(state)
    return generator


def global_indices(steps: list[Step], generator: torch.Generator | None) -> array[int]:
    """The numbers of an epoch of all ranks."""
    return concatenated([step.draw(generator) for step in steps])
