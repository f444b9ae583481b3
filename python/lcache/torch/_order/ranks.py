"""Deals a global order to ranks as samplers do, and deals the rest of it to other ranks after a resume."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from torch.utils.data import BatchSampler

from ..._client.orders import Order
from .frameworks import SHARD_RANK
from .sampler_copy import bounded


def chain(sampler: Any) -> Iterator[Any]:
    """A batch sampler and the samplers that it wraps, from the outside in."""
    for _ in range(8):
        yield sampler
        inner = getattr(sampler, "batch_sampler", None)
        sampler = inner if inner is not None else getattr(sampler, "sampler", None)
        if sampler is None:
            return


def world_rank(sampler: Any) -> tuple[int, int] | None:
    """(world size, rank) of a DistributedSampler or accelerate's shard; None if every process reads the same order."""
    for s in chain(sampler):
        for size_name, rank_name in (("num_replicas", "rank"), SHARD_RANK):
            world, rank = getattr(s, size_name, None), getattr(s, rank_name, None)
            if isinstance(world, int) and isinstance(rank, int):
                return world, rank
    return None


def epoch_holder(sampler: Any) -> Any:
    """The sampler in the chain that stores the epoch's number: it has set_epoch and epoch, and is not lcache's. None: none does."""
    for s in chain(sampler):
        if callable(getattr(s, "set_epoch", None)) and isinstance(getattr(s, "epoch", None), int) and not hasattr(s, "silent"):
            return s
    return None


def cuts_as_torch(batches: Any) -> bool:
    """Whether a batch sampler is torch's or lcache's BatchSampler."""
    return type(batches) is BatchSampler or bool(getattr(batches, "cuts_as_torch", False))


def yields_global_order(batches: Any) -> bool:
    """Whether a batch sampler's batches, including a short one that it may drop, are the global order."""
    found = list(chain(batches))
    if world_rank(batches) is not None or len(found) > 2:
        return False
    return cuts_as_torch(batches) and not hasattr(found[1], "batch_size") if len(found) == 2 else hasattr(batches, "batch_size")


def global_order(twin: Any) -> list[int]:
    """The indices that a batch sampler deals to all ranks, without padding. Changes the batch sampler, which must be a copy."""
    inner = twin
    for s in chain(twin):
        inner = s
        if isinstance(getattr(s, "num_replicas", None), int) and hasattr(s, "total_size"):
            s.num_replicas, s.rank = 1, 0
            s.num_samples = s.total_size = len(s.dataset)
    if not hasattr(inner, "batch_size"):
        return [int(i) for i in bounded(inner)]
    return [int(i) for batch in bounded(inner) for i in batch]


def deal(rest: Any, world: int, rank: int, drop_last: bool) -> Any:
    """One rank's part of an order, a list or an array, as DistributedSampler deals: every world-th index, padded from the start or cut to equal lengths."""
    if world == 1 or not rest:
        return rest
    if drop_last:
        rest = rest[: len(rest) // world * world]
    else:
        short = -len(rest) % world
        rest = rest + (rest * -(-short // len(rest)))[:short]
    return rest[rank::world]


def cut(order: Any, batch_size: int, drop_last: bool) -> Order | list[list[int]]:
    """The batches of an order, which is a list or an array."""
    if isinstance(order, array):
        return Order.cut(order, batch_size, drop_last)
    end = len(order) // batch_size * batch_size if drop_last else len(order)
    return [list(order[at : at + batch_size]) for at in range(0, end, batch_size)]


def digest(order: Sequence[int]) -> str:
    """The SHA-256 of indices as little-endian uint32, in hex."""
    column = order if isinstance(order, array) else array("I", order)
    if column.itemsize != 4 or memoryview(array("H", [1])).tobytes() != b"\x01\x00":
        return hashlib.sha256(b"".join(i.to_bytes(4, "little") for i in order)).hexdigest()
    return hashlib.sha256(column).hexdigest()
