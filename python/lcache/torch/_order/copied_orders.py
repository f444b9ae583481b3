"""The orders of a batch sampler that can't be computed: the output of a copy that runs here or in a forked child, for this epoch and the next ones."""

from __future__ import annotations

import copy
from array import array
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ..._client.orders import Order, u32_array
from ...errors import ArgumentError
from . import ranks
from .drawn_seed import DrawnSeed
from .epoch_numbers import EpochNumbers
from .generator_states import GeneratorStates
from .sampler_copy import Generators, RandomStates, bounded
from .wrappers import Batches


class CopiedOrder(NamedTuple):
    """The order of one epoch."""

    number: int  # of the epoch
    batches: Batches
    digest: str | None  # of the epoch's global order; None: it does not follow from this rank's batches
    start: list[Any] | None  # the states of the sampler's own generators at the next epoch's beginning; None: no epoch depends on them
    is_global: bool  # the order depends on a global random generator, so later ones are unknown


def copied_orders(
    twin: Any, numbers: EpochNumbers, states: GeneratorStates, seed: DrawnSeed | None, later: int, state: Any = None, most: int | None = None
) -> Iterator[CopiedOrder]:
    """Runs a copy through the epoch that begins and `later` more. seed: determines the order. Raises any error of the sampler's code.

    state: that of an iterator, from which the epoch continues. most: the maximal number of indices in an epoch. The caller restores the global random states.
    """
    first, globals_ = numbers.current, RandomStates()
    own, holder = Generators(twin), ranks.epoch_holder(twin)
    held = holder.epoch if holder is not None else 0
    for number in range(first, first + 1 + later):
        if holder is not None:
            holder.set_epoch(held if numbers.stuck else held + number - first)
        if seed is not None:
            seed.prepare(twin, number)
        batches, digest = _run(twin, state if number == first else None, most)
        is_global, start = globals_.changed(), None
        if number > first and is_global:
            return
        if holder is None and len(own):
            states.note_predicted(number + 1, own)
            start = own.states()
        yield CopiedOrder(number, batches, digest, start, is_global)
        if is_global:
            return


def _run(twin: Any, state: Any, most: int | None) -> tuple[Batches, str | None]:
    """The batches of an epoch, and the digest of its global order."""
    cuts = ranks.cuts_as_torch(twin) and bool(twin.drop_last)
    if cuts:
        twin.drop_last = False  # the global order goes on behind the last batch
    try:
        batches = _as_order(bounded(twin if state is None else _restored(twin, state), most))
    finally:
        if cuts:
            twin.drop_last = True
    digest = ranks.digest(batches.flat) if isinstance(batches, Order) and state is None and ranks.yields_global_order(twin) else None
    return _without_short(batches, twin.batch_size) if cuts else batches, digest


def _without_short(batches: Batches, size: int) -> Batches:
    """The batches without a shorter last one."""
    if not len(batches) or len(batches[len(batches) - 1]) == size:
        return batches
    return Order(batches.sizes[:-1], batches.flat[: size * (len(batches) - 1)]) if isinstance(batches, Order) else batches[:-1]


def _restored(twin: Any, state: Any) -> Any:
    """An iterator over a copy that continues from a state."""
    iterator = iter(twin)
    iterator.load_state_dict(copy.deepcopy(state))
    return iterator


def _as_order(batches: Iterable[Any]) -> Batches:
    """The batches as an Order, which needs less memory. The batches themselves if an index is not a u32."""
    columns: list[Any] = []
    is_u32 = True
    for batch in batches:
        if is_u32:
            try:
                columns.append(u32_array(batch, "index"))
                continue
            except ArgumentError:
                is_u32, columns = False, [column.tolist() for column in columns]
        columns.append(batch)
    return Order(array("I", map(len, columns)), array("I", b"".join(column.tobytes() for column in columns))) if is_u32 else columns
