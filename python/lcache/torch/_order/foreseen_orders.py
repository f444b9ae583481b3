"""The orders of a batch sampler's epochs that are known before the sampler draws them, and their digests.

The orders of known samplers are computed (computed_orders.py). Copies of other samplers run in advance (copied_orders.py): a pure one here, when an epoch
begins, and any other one in a forked child, whose orders arrive while the training loop reads (awaited_orders.py).
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from typing import Any

from . import ranks
from .awaited_orders import PATIENCE, AwaitedOrders
from .computed_orders import ComputedOrders
from .copied_orders import CopiedOrder, copied_orders
from .drawn_seed import DrawnSeed
from .epoch_numbers import AHEAD, EpochNumbers
from .forked_child import SECONDS, ChildError
from .generator_states import GeneratorStates
from .importance_sampler import served_sampler
from .known_samplers import KnownSampler, known_sampler
from .later_epochs import Push
from .push import Orders
from .run_ahead import LogOnce, RunAhead
from .sampler_copy import MOST, Generators, RandomStates, copy_sampler, preserved_random_states


class ForeseenOrders:
    """The orders of one batch sampler, the subject. Only the thread of the training loop calls its methods."""

    def __init__(
        self, subject: Callable[[], Any], numbers: EpochNumbers, states: GeneratorStates, drawn: DrawnSeed, run: RunAhead, once: LogOnce
    ) -> None:
        self._subject, self._numbers, self._states, self._drawn, self._run, self._once = subject, numbers, states, drawn, run, once
        self._computed = ComputedOrders(states, drawn)  # for a known sampler
        self._is_computed = self._is_awaiting = False  # the current epoch's order is computed, or predicted by a child
        self._awaited = AwaitedOrders(run)  # for a sampler that a child runs in advance
        self._arrived: Orders = {}  # not yet returned by arrived()
        self._wrong: int | None = None  # the current epoch, if a child predicted it wrongly
        self._noted_digest: tuple[int, str] | None = None  # (epoch, digest) of an order that can't be predicted later

    def nothing(self) -> Orders:
        """Notes that the epoch that begins has no prediction."""
        self._is_computed = self._is_awaiting = False
        self._awaited.end()
        return {}

    def predict(self, known: KnownSampler | None, has_epoch: Callable[[int], bool], state: Any = None) -> Orders:
        """The orders of the epoch that begins and of the next ones, as far as the sampler's own state determines them.

        state: that of an iterator, from which the epoch continues. has_epoch(e) reports whether a server takes the order of a later epoch.
        """
        self._is_computed = self._is_awaiting = False
        self._wrong = None
        computed = None if known is None else self._compute(known)
        return self._run_ahead(has_epoch, state) if computed is None else computed

    @property
    def is_awaited(self) -> bool:
        """Whether more orders may arrive."""
        return self._awaited.is_pending or bool(self._arrived)

    def note_wrong(self, epoch: int) -> bool:
        """Notes that an epoch does not have the predicted order. Returns whether a child predicted it."""
        if not self._is_awaiting:
            return False
        self._wrong = epoch
        self._run.note_wrong()
        return True

    def arrived(self, first: bool = False, last: bool = False) -> Orders:
        """The orders that a child predicted since the last call, of this epoch or later ones. Waits a while at the epoch's first batch and after its last."""
        self._receive(PATIENCE if first or last else 0.0, last)
        found, self._arrived = self._arrived, {}
        return found

    def _receive(self, seconds: float, whole: bool = False) -> None:
        for order in self._awaited.arrived(seconds, whole):
            self._arrived[order.number] = order.batches
            self._note(order)

    def settle(self, stop: bool = False) -> None:
        """Waits for the thread that computes later epochs. stop: ends it after its current epoch."""
        self._computed.settle(stop)
        if stop:
            self._receive(0.0)  # the states of generators
            self._arrived = {}
            self._awaited.end()

    def go_on(self, has_epoch: Callable[[int], bool], push: Push) -> None:
        """Starts to compute and push the orders of the next epochs. Called once in an epoch."""
        first = self._numbers.current + 1
        count = next((ahead for ahead in range(AHEAD) if not has_epoch(first + ahead)), AHEAD)
        self._computed.go_on(count, self._numbers.of_sampler, push)

    @property
    def can_go_on(self) -> bool:
        """Whether go_on() has anything to do."""
        return self._is_computed and self._computed.can_go_on

    def batches(self, known: KnownSampler | None, skip: int) -> Iterator[list[int]] | None:
        """The current epoch's batches from number `skip` on, as the sampler yields them. None: the sampler must draw them itself."""
        return self._computed.batches(skip) if self._is_computed and known is not None and not known.lazy else None

    def digest(self, epoch: int) -> str | None:
        """The digest of an epoch's global order, for the current epoch and later ones. None if it can't be predicted."""
        subject, is_current = self._subject(), epoch == self._numbers.current
        if is_current and self._awaited.is_pending:
            self._receive(SECONDS)
        if epoch == self._wrong:
            return None
        if self._noted_digest is not None and self._noted_digest[0] == epoch:
            return self._noted_digest[1]
        try:
            served = served_sampler(subject)
            if served is not None:
                return ranks.digest(self.global_order(epoch)) if is_current else None  # a coming epoch is not drawn yet
            known = known_sampler(subject)
            if known is not None:
                return self._computed.digest(known, epoch, self._numbers.of_sampler(epoch), is_current)
            found: str | None = self._run.answer(functools.partial(_digest_of, self._preparation(epoch)))
            return found
        except Exception as e:  # noqa: BLE001  any sampler's code may run here
            level = logging.INFO if isinstance(e, ChildError) else logging.WARNING
            self._once("digest", f"the order of epoch {epoch} can't be predicted by a copy of the sampler: {e!r}", level)
            return None

    def global_order(self, epoch: int) -> Any:
        """The indices of an epoch of all ranks, without padding."""
        subject = self._subject()
        known, served = known_sampler(subject), served_sampler(subject)
        if served is not None:
            return served.global_order(epoch)
        if known is not None:
            return self._computed.global_order(known, epoch, self._numbers.of_sampler(epoch), epoch == self._numbers.current)
        return self._run.answer(functools.partial(_global_order_of, self._preparation(epoch)))

    def _preparation(self, epoch: int) -> Callable[[Any], None]:
        """Returns a function that sets a copy of the subject to an epoch's beginning."""
        subject = self._subject()
        draws, holder = self._drawn.sampler(subject) is not None, ranks.epoch_holder(subject)
        number = self._numbers.of_sampler(epoch)
        states = self._states.beginning(epoch, epoch == self._numbers.current) if holder is None and len(Generators(subject)) else None

        def prepare(twin: Any) -> None:
            if draws:
                self._drawn.prepare(twin, epoch)
            if holder is not None:
                ranks.epoch_holder(twin).set_epoch(number)
            elif states is not None:
                Generators(twin).restore(states)

        return prepare

    def _compute(self, known: KnownSampler) -> Orders | None:
        """This epoch's order. The next ones are computed when the training loop requests its second batch. None if an index is not a u32."""
        epoch = self._numbers.current
        if self._computed.failure is not None:
            self._once("later", f"the orders of later epochs could not be pushed in advance, which costs speed: {self._computed.failure!r}")
        try:
            current = self._computed.begin(known, epoch, self._numbers.of_sampler(epoch))
        except (TypeError, ValueError, LookupError, OverflowError):
            return None
        self._is_computed = True
        if known.is_global:
            self._note_global(ranks.digest(current.indices))
        return {epoch: current.order}

    def _run_ahead(self, has_epoch: Callable[[int], bool], state: Any) -> Orders:
        """This epoch's order and the next ones, by a copy of a pure sampler. The orders of other samplers arrive later."""
        subject, epoch = self._subject(), self._numbers.current
        orders: Orders = {}
        later = 0 if self._run.this_epoch_only else next((ahead for ahead in range(AHEAD) if not has_epoch(epoch + 1 + ahead)), AHEAD)
        try:
            seed = self._drawn.foreseen(epoch) if self._drawn.sampler(subject) is not None else None
            if not self._run.is_copied:
                numbers, states, self._is_awaiting = self._numbers, self._states, True
                self._awaited.begin(epoch, lambda twin: copied_orders(twin, numbers, states, seed, later, state, MOST))
                return {}
            with preserved_random_states():
                for order in copied_orders(copy_sampler(subject), self._numbers, self._states, seed, later, state):
                    orders[order.number] = order.batches
                    self._note(order)
        except Exception as e:  # noqa: BLE001  any sampler's code may run here
            self._once("predict", f"the order can't be predicted, which costs speed: {type(subject).__name__}: {e!r}")
        return orders

    def _note(self, order: CopiedOrder) -> None:
        """Stores the digest and the states of generators that come with an order."""
        if order.start is not None:
            self._states.note_start(order.number + 1, order.start)
        if order.number == self._numbers.current:
            self._noted_digest = None if order.digest is None else (order.number, order.digest)
            if order.is_global:
                self._log_global()

    def _note_global(self, digest: str) -> None:
        self._noted_digest = self._numbers.current, digest
        self._log_global()

    def _log_global(self) -> None:
        self._once(
            "global",
            "the order depends on a global random generator, so only the current epoch can be predicted, not the next: "
            "give the sampler a generator of its own (or DataLoader a seed)",
            logging.INFO,
        )


def _digest_of(prepare: Callable[[Any], None], twin: Any) -> str | None:
    """The digest of a copy's global order. None: it depends on a global generator, so it is known only when the epoch begins."""
    states = RandomStates()
    prepare(twin)
    try:
        order = ranks.global_order(twin)
    except TypeError:
        return None  # it yields batches, and has no batch_size
    return None if states.changed() else ranks.digest(order)


def _global_order_of(prepare: Callable[[Any], None], twin: Any) -> list[int]:
    prepare(twin)
    return ranks.global_order(twin)
