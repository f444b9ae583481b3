"""The orders of a batch sampler's epochs, as far as they are known before the sampler draws them, and their digests.

The orders of known samplers are computed (computed_orders.py), those of others drawn by copies (copied_orders.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

from . import ranks
from .computed_orders import ComputedOrders
from .copied_orders import CopiedOrders
from .drawn_seed import DrawnSeed
from .epoch_numbers import AHEAD, EpochNumbers
from .generator_states import GeneratorStates
from .importance_sampler import served_sampler
from .known_samplers import KnownSampler, known_sampler
from .later_epochs import Push
from .log_once import LogOnce
from .push import Orders
from .sampler_copy import Generators, copy_sampler, preserved_random_states


class ForeseenOrders:
    """The orders of one batch sampler, the subject. All methods belong to the thread of the training loop."""

    def __init__(self, subject: Callable[[], Any], numbers: EpochNumbers, states: GeneratorStates, drawn: DrawnSeed, once: LogOnce) -> None:
        self._subject, self._numbers, self._states, self._drawn, self._once = subject, numbers, states, drawn, once
        self._computed = ComputedOrders(states, drawn)  # of a sampler that is known
        self._is_computed = False  # the current epoch's order is one of them
        self._noted_digest: tuple[int, str] | None = None  # (epoch, digest) of an order that can't be predicted later

    def nothing(self) -> Orders:
        """Notes that nothing is predicted of the epoch that begins."""
        self._is_computed = False
        return {}

    def predict(self, known: KnownSampler | None, has_epoch: Callable[[int], bool], state: Any = None) -> Orders:
        """The orders of the epoch that begins and the next ones, as far as they follow from the sampler's own state.

        state: that of an iterator, from which the epoch goes on. has_epoch tells whether anybody wants a later epoch's order.
        """
        self._is_computed = False
        computed = None if known is None else self._compute(known)
        return self._predict_by_copies(has_epoch, state) if computed is None else computed

    def settle(self, stop: bool = False) -> None:
        """Waits for the later epochs that are computed in a thread. stop: not for more of them than the one at hand."""
        self._computed.settle(stop)

    def go_on(self, has_epoch: Callable[[int], bool], push: Push) -> None:
        """Has the orders of the next epochs computed and pushed. Once in an epoch."""
        first = self._numbers.current + 1
        count = next((ahead for ahead in range(AHEAD) if not has_epoch(first + ahead)), AHEAD)
        self._computed.go_on(count, self._numbers.of_sampler, push)

    @property
    def can_go_on(self) -> bool:
        """Whether go_on() has anything to do."""
        return self._is_computed and self._computed.can_go_on

    def batches(self, known: KnownSampler | None, skip: int) -> Iterator[list[int]] | None:
        """The current epoch's batches from number `skip` on, as the sampler yields them. None: the sampler has to draw them itself."""
        return self._computed.batches(skip) if self._is_computed and known is not None and not known.lazy else None

    def digest(self, epoch: int) -> str | None:
        """The digest of an epoch's global order, for the current epoch and later ones. None if it can't be predicted."""
        if self._noted_digest is not None and self._noted_digest[0] == epoch:
            return self._noted_digest[1]
        subject, current = self._subject(), self._numbers.current
        try:
            served = served_sampler(subject)
            if served is not None:
                return ranks.digest(self.global_order(epoch)) if epoch == current else None  # a coming epoch is not drawn yet
            known = known_sampler(subject)
            if known is not None:
                return self._computed.digest(known, epoch, self._numbers.of_sampler(epoch), epoch == current)
            with preserved_random_states() as states:
                twin = copy_sampler(subject)
                self._prepare(twin, epoch)
                order = ranks.global_order(twin)
                # An order from a global generator can be predicted only at the epoch's beginning.
                return None if states.changed() else ranks.digest(order)
        except Exception as e:  # noqa: BLE001  any sampler's code may run here
            self._once("digest", f"the order of epoch {epoch} can't be predicted by a copy of the sampler: {e!r}")
            return None

    def global_order(self, epoch: int) -> Any:
        """The indices of an epoch of all ranks, without padding."""
        subject = self._subject()
        known, served = known_sampler(subject), served_sampler(subject)
        if served is not None:
            return served.global_order(epoch)
        if known is not None:
            return self._computed.global_order(known, epoch, self._numbers.of_sampler(epoch), epoch == self._numbers.current)
        with preserved_random_states():
            twin = copy_sampler(subject)
            self._prepare(twin, epoch)
            return ranks.global_order(twin)

    def _prepare(self, twin: Any, epoch: int) -> None:
        """Brings a copy of the subject to an epoch's beginning."""
        holder = ranks.epoch_holder(twin)
        generators = Generators(twin)
        if self._drawn.sampler(self._subject()) is not None:
            self._drawn.prepare(twin, epoch)
        if holder is not None:
            holder.set_epoch(self._numbers.of_sampler(epoch))
        elif len(generators):
            self._states.prepare(generators, epoch, epoch == self._numbers.current)

    def _compute(self, known: KnownSampler) -> Orders | None:
        """This epoch's order. The next ones are computed when the training loop goes on. None if the order is not one of u32."""
        epoch = self._numbers.current
        if self._computed.failure is not None:
            self._once("later", f"the orders of later epochs could not be told to the server ahead, which costs speed: {self._computed.failure!r}")
        try:
            current = self._computed.begin(known, epoch, self._numbers.of_sampler(epoch))
        except (TypeError, ValueError, LookupError, OverflowError):
            return None
        self._is_computed = True
        if known.is_global:
            self._note_global(ranks.digest(current.indices))
        return {epoch: current.order}

    def _predict_by_copies(self, has_epoch: Callable[[int], bool], state: Any) -> Orders:
        subject, epoch = self._subject(), self._numbers.current
        copied = CopiedOrders()
        try:
            seed = self._drawn.foreseen(epoch) if self._drawn.sampler(subject) is not None else None
            copied.predict(subject, self._numbers, self._states, seed, has_epoch, state)
        except Exception as e:  # noqa: BLE001  any sampler's code may run here
            self._once("predict", f"the order can't be predicted, which costs speed: {type(subject).__name__}: {e!r}")
        if copied.global_digest is not None:
            self._note_global(copied.global_digest)
        return copied.orders

    def _note_global(self, digest: str) -> None:
        self._noted_digest = self._numbers.current, digest
        self._once(
            "global",
            "the order depends on a global random generator, so that only the epoch that begins can be predicted, not the next: "
            "give the sampler a generator of its own (or DataLoader a seed)",
            logging.INFO,
        )
