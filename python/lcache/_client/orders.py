"""Converts indices and orders of a caller to the form of the protocol."""

from __future__ import annotations

import bisect
import hashlib
import itertools
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..errors import ArgumentError, ProtocolError
from . import protocol
from .session import Request, Session


class Order(Sequence["list[int]"]):
    """One rank's order of an epoch, as a sequence of batches: the number of samples in each, and the indices of all, both u32.

    The buffers must not change.
    """

    __slots__ = ("_digest", "_ends", "flat", "sizes")

    def __init__(self, sizes: array[int], flat: array[int] | memoryview) -> None:
        """flat has all batches in sequence."""
        self.sizes, self.flat = sizes, flat
        self._ends: Sequence[int] | None = None
        self._digest: bytes | None = None

    @classmethod
    def of_batches(cls, batches: Any) -> Order:
        """The order of batches of any sizes. Raises ArgumentError if an index is not a u32."""
        columns = [u32_array(batch, "index") for batch in batches]
        return cls(array("I", map(len, columns)), array("I", b"".join(column.tobytes() for column in columns)))

    @classmethod
    def cut(cls, flat: array[int], batch_size: int, drop_last: bool = False) -> Order:
        """The order of indices, cut into batches of one size. drop_last leaves out a shorter last batch."""
        count, rest = divmod(len(flat), batch_size)
        sizes = array("I", [batch_size]) * count
        if rest and not drop_last:
            sizes.append(rest)
        order = cls(sizes, memoryview(flat)[: count * batch_size] if rest and drop_last else flat)
        order._ends = range(batch_size, batch_size * (len(sizes) + 1), batch_size)  # the last one may be beyond the end
        return order

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        return self.column(number).tolist()

    def column(self, number: int) -> array[int] | memoryview:
        """The indices of a batch."""
        end = self.ends[number]
        begin = self.ends[number - 1] if number % len(self) else 0
        return self.flat[begin:end]

    @property
    def ends(self) -> Sequence[int]:
        """The end of each batch in flat."""
        if self._ends is None:
            self._ends = array("Q", itertools.accumulate(self.sizes))
        return self._ends

    @property
    def digest(self) -> bytes:
        """The SHA-256 of the sizes and the indices. Orders with the same digest are equal."""
        if self._digest is None:
            hashed = hashlib.sha256(len(self.sizes).to_bytes(8, "little"))
            hashed.update(self.sizes)
            hashed.update(self.flat)
            self._digest = hashed.digest()
        return self._digest


def chunk_requests(epoch: int, rank: int) -> Callable[[int], tuple[Request, None]]:
    """The request for a batch of the server's order, by the batch's number."""

    def request_of(number: int) -> tuple[Request, None]:
        require_numbers(epoch, rank, number)
        return Request(protocol.CHUNK, protocol.chunk(epoch, rank, number), f"epoch {epoch} rank {rank} batch {number}"), None

    return request_of


def order_requests(epoch: int, rank: int, order: Order) -> Callable[[int], tuple[Request, array[int] | memoryview] | None]:
    """The request for a batch of a pushed order, and the batch's indices, by the batch's number. None after the last batch."""

    def request_of(number: int) -> tuple[Request, array[int] | memoryview] | None:
        if number >= len(order):
            return None
        require_numbers(epoch, rank, number)
        wanted = order.column(number)
        return Request(protocol.GET, protocol.get(wanted.tobytes(), (epoch, rank, number)), f"epoch {epoch} rank {rank} batch {number}"), wanted

    return request_of


def push_requests(epoch: int, rank: int, order: Order) -> Iterator[Request]:
    """The PUSH requests of one order, split between batches."""
    sizes, ends = order.sizes, order.ends
    first, at = 0, 0  # the first batch of a request, and its place in flat
    while True:
        last = min(bisect.bisect_right(ends, at + protocol.PUSH_PIECE, first), first + protocol.PUSH_PIECE, len(sizes))
        last = max(last, min(first + 1, len(sizes)))
        end = min(ends[last - 1], len(order.flat)) if last > first else at
        more = last < len(sizes)
        body = protocol.push(epoch, rank, first, more, sizes[first:last].tobytes(), order.flat[at:end].tobytes())
        yield Request(protocol.PUSH, body, f"the order of epoch {epoch} rank {rank}")
        if not more:
            return
        first, at = last, end


def require_numbers(*numbers: int) -> None:
    """Raises ArgumentError unless each number is valid as an epoch, rank or batch of the protocol."""
    for number in numbers:
        if not 0 <= number < protocol.NOWHERE:
            raise ArgumentError(f"an epoch, rank or batch number must be 0 to {protocol.NOWHERE - 1}, not {number}")


def u32_array(values: Any, what: str) -> array[int]:
    """values as u32; what names them in the ArgumentError. A buffer of u32 is copied directly, anything else through a list."""
    try:
        view = memoryview(values)
        if view.format in ("I", "=I", "<I") and view.ndim == 1:
            return array("I", view.tobytes())
    except TypeError:
        pass
    try:
        return array("I", iter(values.tolist() if hasattr(values, "tolist") else values))  # iter, because array would read bytes as raw memory
    except (OverflowError, TypeError) as e:
        raise ArgumentError(f"not a sequence of {what} numbers: {e}") from None


def require_indices(request: Request, session: Session, columns: protocol.Columns, wanted: array[int] | memoryview | None) -> None:
    """Raises ProtocolError unless an answer has the requested indices. A server that skips samples may leave some out. None: the order is the server's own."""
    got = columns.indices if columns.requested is None else columns.requested
    if wanted is None or got == memoryview(wanted):
        return
    if session.info.on_error != "skip" or not _is_subsequence(got, wanted):
        raise ProtocolError(f"{request.what}: the server answered with other indices")


def _is_subsequence(got: memoryview, wanted: array[int] | memoryview) -> bool:
    rest = iter(wanted)
    return all(index in rest for index in got)
