"""The orders of a batch sampler that is not known: of this epoch and the next ones, by a copy that runs in the training loop's thread."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from ..errors import ArgumentError
from ..orders import Order
from . import ranks
from .drawn_seed import DrawnSeed
from .epoch_numbers import AHEAD, EpochNumbers
from .generator_states import GeneratorStates
from .push import Orders
from .sampler_copy import Generators, bounded, copy_sampler, preserved_random_states
from .wrappers import Batches


class CopiedOrders:
    """What copies of one sampler predict when an epoch begins."""

    def __init__(self) -> None:
        self.orders: Orders = {}  # as far as they are predicted, also where predict() raises an error
        self.global_digest: str | None = None  # of the epoch's global order, where that depends on a global generator and can't be computed later

    def predict(
        self, subject: Any, numbers: EpochNumbers, states: GeneratorStates, seed: DrawnSeed | None, has_epoch: Callable[[int], bool], state: Any = None
    ) -> None:
        """Predicts the epoch that begins and the next ones. seed: the order follows from it. Raises any error of the sampler's code.

        state: that of an iterator, from which the epoch goes on.
        """
        first = numbers.current
        with preserved_random_states() as globals_:
            twin = copy_sampler(subject)
            own, holder = Generators(twin), ranks.epoch_holder(twin)
            held = holder.epoch if holder is not None else 0
            for number in range(first, first + 1 + AHEAD):
                if number > first and not has_epoch(number):
                    break
                if holder is not None:
                    holder.set_epoch(held if numbers.stuck else held + number - first)
                if seed is not None:
                    seed.prepare(twin, number)
                batches = list(bounded(twin if state is None or number > first else _restored(twin, state)))
                if number > first and globals_.changed():
                    break
                self.orders[number] = _as_order(batches)
                if globals_.changed():
                    with preserved_random_states():
                        self.global_digest = ranks.digest(ranks.global_order(copy_sampler(subject)))
                    break
                if holder is None and len(own):
                    states.note_predicted(number + 1, own)


def _restored(twin: Any, state: Any) -> Any:
    """An iterator over a copy that goes on from a state."""
    iterator = iter(twin)
    iterator.load_state_dict(copy.deepcopy(state))
    return iterator


def _as_order(batches: list[list[int]]) -> Batches:
    """The order of batches, which takes less memory; the batches themselves if they hold more than u32."""
    try:
        return Order.of_batches(batches)
    except ArgumentError:
        return batches
