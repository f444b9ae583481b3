"""The position of a training loop, as the JSON of state_dict, and the remaining batches of an epoch after a resume."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..._client.orders import Order
from ...errors import Error
from . import ranks
from .loader_job import LeftOut

_VERSION = 1


class Position(NamedTuple):
    """First `before` samples of the epoch's global order were read, then `consumed` batches of batch_size on each of `world` ranks."""

    epoch: int
    consumed: int
    world: int
    batch_size: int | None  # None: batches have no fixed size
    before: int
    digest: str | None  # of the epoch's global order; None: unknown

    def remaining(self, order: Any, world: int, rank: int, batch_size: int, drop_last: tuple[bool, bool]) -> tuple[Order | list[list[int]], int]:
        """(the remaining batches of one rank with another world size, the number of samples of the global order that were read).

        drop_last: whether samples that do not fill a round of ranks are dropped, and whether a short batch is.
        """
        done = min(self.before + self.consumed * (self.batch_size or 0) * self.world, len(order))
        mine = ranks.deal(order[done:], world, rank, drop_last[0])
        return ranks.cut(mine, batch_size, drop_last[1]), done


def to_state(at: Position, seed: int | None, fingerprint: str | None, left_out: LeftOut | None) -> dict[str, Any]:
    """The state_dict of a loader."""
    state = {
        "v": _VERSION, "seed": seed, "epoch": at.epoch, "consumed": at.consumed, "world": at.world, "batch_size": at.batch_size,
        "fingerprint": fingerprint, "order_digest": at.digest,
    }
    added = {"before": at.before or None, "bad": None if left_out is None else left_out.digest}
    return {**state, **{name: value for name, value in added.items() if value is not None}}


def require_left_out(saved: str | None, left_out: LeftOut | None) -> None:
    """Raises Error if a state was saved with another list of bad samples."""
    here = None if left_out is None else left_out.digest
    if saved != here:
        was, now = ("no bad= list" if digest is None else f"a bad= list with digest {digest[:8]}" for digest in (saved, here))
        raise Error(f"load the loader's state: it was saved with {was}, and this loader has {now}: give the dataset the bad= list that it had")


def from_state(state: dict[str, Any], fingerprint: str | None, left_out: LeftOut | None) -> Position:
    """The position in a state_dict. Raises Error if the state has another version, or comes from a dataset with another fingerprint or other bad samples."""
    if state.get("v") != _VERSION:
        raise Error(f"load the loader's state: it has version {state.get('v')}, and this lcache reads version {_VERSION}; use the lcache that saved it")
    if state["fingerprint"] != fingerprint:
        differs = f"fingerprint {state['fingerprint']}, here {fingerprint}"
        raise Error(f"load the loader's state: it comes from another dataset ({differs}); give the same source and filters")
    require_left_out(state.get("bad"), left_out)
    return Position(state["epoch"], state["consumed"], state["world"], state["batch_size"] or 0, state.get("before", 0), state["order_digest"])
