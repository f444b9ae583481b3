"""Indices and orders as a caller has them, in the form that the protocol wants."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

from . import protocol
from .errors import ArgumentError
from .session import Ticket


def pieces(epoch: int, rank: int, sizes: array[int], flat: array[int]) -> Iterator[Ticket]:
    """The PUSH requests of one order, cut between batches."""
    first, at = 0, 0
    while True:
        last, end = first, at
        while last < len(sizes) and (last == first or end - at + sizes[last] <= protocol.PUSH_PIECE) and last - first < protocol.PUSH_PIECE:
            end += sizes[last]
            last += 1
        more = last < len(sizes)
        body = protocol.push(epoch, rank, first, more, sizes[first:last].tobytes(), flat[at:end].tobytes())
        yield Ticket(protocol.PUSH, body, f"the order of epoch {epoch} rank {rank}")
        if not more:
            return
        first, at = last, end


def numbers(*numbers: int) -> Any:
    for number in numbers:
        if not 0 <= number < protocol.NOWHERE:
            raise ArgumentError(f"{number} is no epoch, rank or batch")
    return numbers


def column(values: Any, what: str) -> array[int]:
    """values as u32: fast for buffers of that type, by way of a list for the rest."""
    try:
        view = memoryview(values)
        if view.format in ("I", "=I", "<I") and view.ndim == 1:
            return array("I", view.tobytes())
    except TypeError:
        pass
    try:
        return array("I", iter(values.tolist() if hasattr(values, "tolist") else values))  # iter: array takes bytes for raw memory
    except (OverflowError, TypeError) as e:
        raise ArgumentError(f"not a sequence of {what} numbers: {e}") from None
