"""Where a training loop stands, as the JSON of state_dict, and the batches that remain of an epoch after a resume."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..._client.orders import Order
from ...errors import Error
from . import ranks

_VERSION = 1


class Position(NamedTuple):
    """`before` samples of the epoch's global order are done, and then `consumed` batches of batch_size on each of `world` ranks."""

    epoch: int
    consumed: int
    world: int
    batch_size: int | None  # None: batches have no fixed size
    before: int
    digest: str | None  # of the epoch's global order; None: unknown

    def remaining(self, order: Any, world: int, rank: int, batch_size: int, drop_last: tuple[bool, bool]) -> tuple[Order | list[list[int]], int]:
        """The batches that one rank of another world reads of the epoch's global order, and how many samples of that order are done.

        drop_last tells whether samples that fill no whole round of ranks are dropped, and whether a short batch is.
        """
        done = min(self.before + self.consumed * (self.batch_size or 0) * self.world, len(order))
        mine = ranks.deal(order[done:], world, rank, drop_last[0])
        return ranks.cut(mine, batch_size, drop_last[1]), done


def to_state(at: Position, seed: int | None, fingerprint: str | None) -> dict[str, Any]:
    """The state_dict of a loader."""
    state = {
        "v": _VERSION, "seed": seed, "epoch": at.epoch, "consumed": at.consumed, "world": at.world, "batch_size": at.batch_size,
        "fingerprint": fingerprint, "order_digest": at.digest,
    }
    return {**state, "before": at.before} if at.before else state


def from_state(state: dict[str, Any], fingerprint: str | None) -> Position:
    """The position in a state_dict. Error if it has another version, or is of a dataset with another fingerprint."""
    if state.get("v") != _VERSION:
        raise Error(f"the loader's state has version {state.get('v')}, this lcache knows {_VERSION}")
    if state["fingerprint"] != fingerprint:
        raise Error(f"the loader's state is of another dataset: fingerprint {state['fingerprint']}, here {fingerprint}")
    return Position(state["epoch"], state["consumed"], state["world"], state["batch_size"] or 0, state.get("before", 0), state["order_digest"])
