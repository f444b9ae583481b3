"""The orders of a known sampler. This epoch's order is computed when it begins. A thread computes the next ones once the loop requests its second batch."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator

import torch

from . import ranks
from .computed_epoch import ComputedEpoch, global_indices, private
from .drawn_seed import DrawnSeed
from .generator_states import GeneratorStates
from .known_samplers import KnownSampler
from .later_epochs import Following, LaterEpochs, Push
from .sampler_copy import Generators


class ComputedOrders:
    """The orders of one batch sampler. Only the thread of the training loop calls its methods."""

    def __init__(self, states: GeneratorStates, drawn: DrawnSeed) -> None:
        self._states, self._drawn = states, drawn
        self._known: KnownSampler | None = None
        self._number = -1  # of the current epoch
        self._epochs: dict[int, ComputedEpoch] = {}  # the current epoch, and those computed in advance
        self._later: LaterEpochs | None = None
        self.failure: Exception | None = None  # the reason why later epochs are not computed or not pushed

    def begin(self, known: KnownSampler, number: int, sampler_epoch: int) -> ComputedEpoch:
        """Computes the epoch that begins, unless it was computed in advance.

        The sampler's generator is at the epoch's beginning. sampler_epoch is the sampler's number of the epoch.
        """
        generator = self._own(known, number, sampler_epoch) or private(known.generator)
        fresh, kept = ComputedEpoch(known, sampler_epoch, generator), self._epochs.get(number)
        current = kept if kept is not None and kept.is_same_as(fresh) else fresh.draw()
        self._known, self._number = known, number
        self._epochs = {number: current, **{e: c for e, c in self._epochs.items() if e > number}}
        return current

    @property
    def can_go_on(self) -> bool:
        """Whether later epochs can be computed in advance, and this was not started yet."""
        return self._later is None and self._known is not None and not self._known.is_global

    def go_on(self, count: int, sampler_epoch: Callable[[int], int], push: Push) -> None:
        """Starts to compute and push the next `count` epochs. Called once in an epoch.

        sampler_epoch(e) is the sampler's number of epoch e.
        """
        known = self._known
        if not self.can_go_on or known is None or not count:
            return
        following = [
            Following(e, sampler_epoch(e), self._own(known, e, sampler_epoch(e)), self._epochs.get(e))
            for e in range(self._number + 1, self._number + 1 + count)
        ]
        self._later = LaterEpochs(known, self._epochs[self._number], following, self._states.draws_base_seed, push)

    def batches(self, skip: int) -> Iterator[list[int]]:
        """The current epoch's batches from number `skip` on, as the sampler yields them."""
        known, current = self._known, self._epochs[self._number]
        assert known is not None
        if not known.reseeds:
            yield from current.batches(self._drawn.generator(self._number) if known.draws_seed else known.generator, skip)
            return
        sampler = known.sampler
        sampler.generator = known.reseeded(sampler.epoch, sampler.generator)
        yield from current.batches(sampler.generator, skip)
        sampler.set_epoch(sampler.epoch + 1)  # as the sampler itself does

    def settle(self, stop: bool = False) -> None:
        """Waits until the later epochs are computed, and stores the states of the generators. stop: ends the thread after its current epoch."""
        later, self._later = self._later, None
        if later is None:
            return
        if stop:
            later.stop()
        later.join()
        self.failure = later.failure
        for epoch, state in later.starts.items():
            self._states.note_start(epoch, [state])
        self._epochs.update(later.epochs)

    def digest(self, known: KnownSampler, epoch: int, sampler_epoch: int, current: bool) -> str | None:
        """The digest of an epoch's global order. None if the order depends on a seed that is not drawn yet, or on a global generator."""
        generator, is_clear = self._at(known, epoch, sampler_epoch, current)
        if not is_clear:
            return None
        computed, fresh = self._epochs.get(epoch), ComputedEpoch(known, sampler_epoch, generator)
        if computed is None or not computed.is_same_as(fresh):
            return ranks.digest(known.indices(global_indices(known.global_steps(sampler_epoch), generator)))
        if computed.global_digest is None:
            same = ranks.world_rank(known.sampler) is None
            order = computed.indices if same else known.indices(global_indices(known.global_steps(sampler_epoch), generator))
            computed.global_digest = ranks.digest(order)
        return computed.global_digest

    def global_order(self, known: KnownSampler, epoch: int, sampler_epoch: int, current: bool) -> array[int]:
        """The indices of an epoch of all ranks, without padding."""
        return known.indices(global_indices(known.global_steps(sampler_epoch), self._at(known, epoch, sampler_epoch, current)[0]))

    def _own(self, known: KnownSampler, epoch: int, sampler_epoch: int) -> torch.Generator | None:
        """A generator that is seeded for the epoch, if the sampler has one for each epoch."""
        if known.reseeds:
            return known.reseeded(sampler_epoch)
        return self._drawn.generator(epoch) if known.draws_seed else None

    def _at(self, known: KnownSampler, epoch: int, sampler_epoch: int, current: bool) -> tuple[torch.Generator | None, bool]:
        """A private generator at an epoch's beginning, and whether its state is known."""
        if known.draws_seed and self._drawn.seed is None:
            return None, False
        if known.draws_seed or known.reseeds:
            return self._own(known, epoch, sampler_epoch), True
        generator = private(known.generator)
        if generator is not None and not known.is_global:
            Generators.of([generator]).restore(self._states.beginning(epoch, current))
        return generator, not known.is_global
