"""Orders as columns: cut, compared and sent in pieces."""

import random
import struct
from array import array

import pytest

from lcache import ArgumentError
from lcache._client import protocol
from lcache._client.orders import Order, push_requests


def test_cut():
    for n in range(30):
        flat = array("I", range(100, 100 + n))
        for size in (1, 3, 10, 40):
            whole = [flat[at : at + size].tolist() for at in range(0, n, size)]
            for drop_last in (False, True):
                order = Order.cut(flat, size, drop_last)
                want = [batch for batch in whole if len(batch) == size or not drop_last]
                assert order[:] == list(order) == want and len(order) == len(want)
                assert order.digest == Order.of_batches(want).digest
                assert not want or (order[-1], order[-len(want)]) == (want[-1], want[0])
                assert list(order.flat) == sum(want, [])


def test_digest():
    """Another index, another cut, another number of batches: another digest."""
    digests = [Order.of_batches(batches).digest for batches in ([], [[]], [[1, 2], [3]], [[1], [2, 3]], [[1, 2, 3]], [[1, 2], [4]], [[1, 2], [3], []])]
    assert len(set(digests)) == len(digests)


def test_no_u32():
    for batches in ([[1], [-1]], [[1 << 32]], [["a"]], [[1.5]]):
        with pytest.raises(ArgumentError):
            Order.of_batches(batches)


def test_pieces(monkeypatch):
    """Pieces are cut between batches. A piece has at most PUSH_PIECE indices, unless one batch has more, and at most PUSH_PIECE batches."""
    monkeypatch.setattr(protocol, "PUSH_PIECE", 16)
    draw = random.Random(1)
    for _ in range(200):
        batches = [[draw.randrange(1 << 32) for _ in range(draw.choice((0, 0, 1, 3, 9, 16, 40)))] for _ in range(draw.randrange(60))]
        check(Order.of_batches(batches), batches)
        flat = array("I", sum(batches, []))
        size = draw.choice((1, 5, 16, 17))
        check(Order.cut(flat, size), [flat[at : at + size].tolist() for at in range(0, len(flat), size)])


def check(order, batches):
    sizes, flat, mores = [], [], []
    for request in push_requests(3, 1, order):
        epoch, rank, first, more, count = struct.unpack_from("<IIIII", request.body)
        rest = memoryview(request.body)[20:].cast("I").tolist()
        assert (epoch, rank, first) == (3, 1, len(sizes)) and request.kind == protocol.PUSH
        assert count <= 16 and (sum(rest[:count]) <= 16 or count == 1 or sum(1 for n in rest[:count] if n) == 1)
        sizes += rest[:count]
        flat += rest[count:]
        mores.append(more)
    assert sizes == [len(batch) for batch in batches] and flat == sum(batches, [])
    assert mores == [1] * (len(mores) - 1) + [0]
