"""Indices and orders as a caller has them, in the form that the protocol wants."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterator
from typing import Any

from . import protocol
from .errors import ArgumentError, ProtocolError
from .session import Request, Session


def chunk_requests(epoch: int, rank: int) -> Callable[[int], tuple[Request, None]]:
    """The request for a batch of the server's order, by the batch's number."""

    def request_of(number: int) -> tuple[Request, None]:
        require_numbers(epoch, rank, number)
        return Request(protocol.CHUNK, protocol.chunk(epoch, rank, number), f"epoch {epoch} rank {rank} batch {number}"), None

    return request_of


def order_requests(epoch: int, rank: int, sizes: array[int], flat: array[int]) -> Callable[[int], tuple[Request, array[int]] | None]:
    """The request for a batch of a pushed order, and the batch's indices, by the batch's number. None behind the last batch."""
    ends = array("Q", itertools.accumulate(sizes))

    def request_of(number: int) -> tuple[Request, array[int]] | None:
        if number >= len(sizes):
            return None
        require_numbers(epoch, rank, number)
        wanted = flat[ends[number] - sizes[number] : ends[number]]
        return Request(protocol.GET, protocol.get(wanted.tobytes(), (epoch, rank, number)), f"epoch {epoch} rank {rank} batch {number}"), wanted

    return request_of


def push_requests(epoch: int, rank: int, sizes: array[int], flat: array[int]) -> Iterator[Request]:
    """The PUSH requests of one order, cut between batches. sizes has the samples of each batch, flat the indices of all batches."""
    first, at = 0, 0  # the first batch of a request, and its place in flat
    while True:
        last, end = first, at
        while last < len(sizes) and (last == first or end - at + sizes[last] <= protocol.PUSH_PIECE) and last - first < protocol.PUSH_PIECE:
            end += sizes[last]
            last += 1
        more = last < len(sizes)
        body = protocol.push(epoch, rank, first, more, sizes[first:last].tobytes(), flat[at:end].tobytes())
        yield Request(protocol.PUSH, body, f"the order of epoch {epoch} rank {rank}")
        if not more:
            return
        first, at = last, end


def require_numbers(*numbers: int) -> None:
    """ArgumentError unless every number fits an epoch, rank or batch of the protocol."""
    for number in numbers:
        if not 0 <= number < protocol.NOWHERE:
            raise ArgumentError(f"{number} is no epoch, rank or batch")


def u32_array(values: Any, what: str) -> array[int]:
    """values as u32; what names them in the ArgumentError. A buffer of u32 is copied at once, anything else goes through a list."""
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


def require_indices(request: Request, session: Session, columns: protocol.Columns, wanted: array[int] | None) -> None:
    """ProtocolError unless an answer has the wanted indices. A server that skips may leave some out. None: the order is the server's own."""
    if wanted is None or columns.indices == memoryview(wanted):
        return
    if session.info.on_error != "skip" or not _is_subsequence(columns.indices, wanted):
        raise ProtocolError(f"{request.what}: the server answered with other indices")


def _is_subsequence(got: memoryview, wanted: array[int]) -> bool:
    rest = iter(wanted)
    return all(index in rest for index in got)
