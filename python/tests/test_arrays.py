"""batch.array: samples of one size are copied into one private array. All other cases raise a clear error."""

import struct
import sys

import fakeserver
import pytest

import lcache
from lcache._client import protocol

numpy = pytest.importorskip("numpy", reason="numpy is not installed")


class Fixed(fakeserver.Server):
    """Samples of eight bytes, except for index 99. With parts: "a" has four bytes, "b" the other four."""

    def content(self, index):
        return struct.pack("<II", index, index * index) + b"more" * (index == 99)

    def batch(self, indices, mine):
        with pytest.MonkeyPatch.context() as m:
            m.setattr(fakeserver, "content", self.content)
            return super().batch(indices, mine)

    def answer(self, kind, body, mine):
        if kind == protocol.PARTS:
            indices = memoryview(body)[4:].cast("I").tolist()
            exts = [b"a", b"b"]
            counts = [1 if i == 98 else 2 for i in indices]
            columns = [n for i, c in zip(indices, counts) for n in ((0, 8) if c == 1 else (0, 4, 1, 4 if i != 99 else 8))]
            return protocol.A_PARTS, struct.pack(f"<II{len(counts)}I{len(columns)}I2I", len(counts), 2, *counts, *columns, 1, 1) + b"".join(exts)
        return super().answer(kind, body, mine)


@pytest.fixture
def fixed(serve, path):
    def start(**info):
        server = serve(Fixed, **info)
        job = lcache.connect(path, timeout=10)
        job.server = server
        return job

    return start


def want(indices):
    return [[i, i * i] for i in indices]


def test_gathered(fixed):
    job = fixed()
    indices = [5, 3, 900, 3, 0]
    batch = job.get(indices)
    got = batch.array("<u4", (2,))
    assert got.dtype == numpy.uint32 and got.shape == (5, 2) and got.tolist() == want(indices)
    assert got.flags.writeable and got.flags.c_contiguous and got.flags.aligned
    assert job.server.wait_for(lambda: not job.server.leases), "the lease ends at once, while the batch lives"
    with pytest.raises(lcache.Error, match="released"):
        batch.array("<u4", 2)
    job.get(range(200, 260)).release()
    assert got.tolist() == want(indices), "the array is private"


@pytest.mark.parametrize("dtype, shape, expected", [("u1", 8, (8,)), ("<u8", (), ()), (numpy.uint16, [2, 2], (2, 2)), ("<i4", numpy.int64(2), (2,)), ("S8", (), ())])
def test_shapes(fixed, dtype, shape, expected):
    job = fixed()
    got = job.get([5, 3]).array(dtype, shape)
    assert got.shape == (2, *expected)
    assert got.tobytes() == b"".join(job.server.content(i) for i in (5, 3)) and len(job.get([]).array(dtype, shape)) == 0


def test_other_size(fixed):
    batch = fixed().get([5, 99, 3])
    with pytest.raises(lcache.SampleError, match=r"sample 99, '.*99', has 12 bytes, and an array of uint32 \(2,\) has 8") as e:
        batch.array("<u4", 2)
    assert e.value.sample.endswith("99") and len(batch.samples) == 3, "an error releases nothing"


@pytest.mark.parametrize("dtype, shape", [("no", 2), ("O", 2), ("<u4", 0), ("<u4", -2), ("<u4", "x"), ("<u4", None), ("V0", 2)])
def test_no_array(fixed, dtype, shape):
    with pytest.raises(lcache.ArgumentError):
        fixed().get([5]).array(dtype, shape)


def test_parts(fixed):
    job = fixed(parts=True)
    batch = job.get([5, 3])
    assert batch.array("<u4", (), part="b", release=False).tolist() == [25, 9]
    assert batch.array("<u4", 1, release=False).tolist() == [[5], [3]], "the first part"
    with pytest.raises(lcache.SampleError, match="sample 5, .* has no part 'c', only 'a', 'b'"):
        batch.array("<u4", 1, part="c")
    with pytest.raises(lcache.SampleError, match="sample 98, .* has 8 bytes"):
        job.get([5, 98]).array("<u4", 1)
    with pytest.raises(lcache.SampleError, match="sample 99, .* has 8 bytes, and an array of uint32 .* has 4"):
        job.get([99, 5]).array("<u4", 1, part="b")


def test_no_parts(fixed):
    with pytest.raises(lcache.ArgumentError, match="have no parts"):
        fixed().get([5]).array("<u4", 2, part="a")


@pytest.mark.parametrize("parts", [False, True])
def test_beyond_credits(fixed, parts):
    """The array of private copies is the same."""
    job = fixed(credit_bytes=1, parts=parts)
    kept = job.get([1])
    batch = job.get([5, 3])
    assert batch.array("<u4", 1 if parts else 2, part="b" if parts else None).tolist() == ([[25], [9]] if parts else want([5, 3]))
    assert bytes(kept.samples[0]) == job.server.content(1)[: 4 if parts else 8]


def test_without_numpy(fixed, monkeypatch):
    batch = fixed().get([5])
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(lcache.Error, match="need numpy, which is not installed here: pip install numpy"):
        batch.array("<u4", 2)
    assert len(batch.samples) == 1


def test_iteration(fixed):
    job = fixed()
    batch = job.get([5, 3])
    assert len(batch) == 2 and [bytes(view) for view in batch] == [job.server.content(i) for i in (5, 3)]
    assert list(batch.lengths) == [8, 8]
