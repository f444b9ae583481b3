"""Invalid answers of a server cause a ProtocolError, and never a crash, a hang or a wrong batch."""

import json
import os
import socket
import struct

import fakeserver
import pytest
from fakeserver import Server

import lcache
from lcache._client import protocol as p

SIZE = 64 << 14  # bytes of the fake server's memory


def columns(offsets=(0,), lengths=(1,), indices=(1,), labels=(0,), count=None, tail=b""):
    n = len(offsets) if count is None else count
    return (
        struct.pack("<QII", 77, n, 0)
        + struct.pack(f"<{len(offsets)}Q", *offsets)
        + struct.pack(f"<{len(lengths)}I", *lengths)
        + struct.pack(f"<{len(indices)}I", *indices)
        + struct.pack(f"<{len(labels)}i", *labels)
        + tail
    )


LIES = {
    "empty": (p.A_BATCH, b""),
    "half a head": (p.A_BATCH, columns()[:10]),
    "head alone": (p.A_BATCH, columns()[:16]),
    "one byte short": (p.A_BATCH, columns()[:-1]),
    "one byte long": (p.A_BATCH, columns(tail=b"x")),
    "count too large": (p.A_BATCH, columns(count=2)),
    "count enormous": (p.A_BATCH, columns(count=0xFFFFFFFF)),
    "count zero": (p.A_BATCH, columns(count=0)),
    "end beyond the map": (p.A_BATCH, columns(offsets=(SIZE,))),
    "offset beyond the map": (p.A_BATCH, columns(offsets=(SIZE + 1,), lengths=(0,))),
    "length beyond the map": (p.A_BATCH, columns(lengths=(0xFFFFFFFF,))),
    "sum wraps u64": (p.A_BATCH, columns(offsets=((1 << 64) - 1,), lengths=(2,))),
    "index not of the dataset": (p.A_BATCH, columns(indices=(1000,))),
    "another index": (p.A_BATCH, columns(indices=(2,))),
    "more than asked": (p.A_BATCH, columns((0, 0), (1, 1), (1, 1), (0, 0))),
    "END for a GET": (p.A_END, b""),
    "JSON for a GET": (p.A_JSON, b"{}"),
    "unknown type": (99, b""),
    "ERROR without JSON": (p.A_ERROR, b"\xff"),
    "ERROR with a list": (p.A_ERROR, b"[]"),
}


@pytest.mark.parametrize("lie", LIES)
def test_lies_about_a_batch(serve, path, lie):
    class Liar(Server):
        def answer(self, kind, body, mine):
            return LIES[lie]

    serve(Liar)
    with lcache.connect(path, timeout=10) as job, pytest.raises(lcache.ProtocolError):
        job.get([1])


@pytest.mark.parametrize(("got", "right"), [((1, 5), True), ((5,), True), ((), True), ((5, 1), False), ((1, 1), False), ((3,), False)])
def test_a_server_that_skips_keeps_the_order(serve, path, got, right):
    class Skips(Server):
        def answer(self, kind, body, mine):
            n = len(got)
            return p.A_BATCH, columns((0,) * n, (1,) * n, got, (0,) * n)

    serve(Skips, on_error="skip")
    with lcache.connect(path, timeout=10) as job:
        if right:
            assert list(job.get([1, 2, 5]).indices) == list(got)
        else:
            with pytest.raises(lcache.ProtocolError, match="other indices"):
                job.get([1, 2, 5])


@pytest.mark.parametrize(
    "body", [b"", b"\1\0\0\0", struct.pack("<II", 2, 1) + b"a", struct.pack("<III", 1, 0xFFFFFFFF, 1), struct.pack("<II", 1, 1) + b"ab", struct.pack("<I", 0)]
)
def test_lies_about_names(serve, path, body):
    class Liar(Server):
        def answer(self, kind, asked, mine):
            return (p.A_NAMES, body) if kind == p.NAMES else super().answer(kind, asked, mine)

    serve(Liar)
    with lcache.connect(path, timeout=10) as job:
        batch = job.get([1])
        with pytest.raises(lcache.ProtocolError):
            batch.names


def parts(count, exts, *numbers, tail=b""):
    return struct.pack(f"<{2 + len(numbers)}I", count, exts, *numbers) + tail


@pytest.mark.parametrize(
    "body",
    [
        b"",
        parts(0, 0),
        parts(2, 0, 0, 0),  # more than requested
        parts(1, 0, 1),  # one part announced, none sent
        parts(1, 0xFFFFFFFF, 0),
        parts(1, 1, 0xFFFFFFFF, 0, 9, 1),
        parts(1, 1, 1, 1, 16, 1, tail=b"a"),  # extension 1 of 1
        parts(1, 1, 1, 0, 15, 1, tail=b"a"),  # the sample has 16 bytes
        parts(1, 1, 1, 0, 17, 1, tail=b"a"),
        parts(1, 1, 2, 0, 16, 0, 1, 1, tail=b"a"),
        parts(1, 1, 1, 0, 16, 2, tail=b"a"),
        parts(1, 1, 1, 0, 16, 1, tail=b"ab"),
    ],
)
@pytest.mark.parametrize("along", [False, True])
def test_lies_about_parts(serve, path, body, along):
    class Liar(Server):
        def batch(self, indices, mine):
            return super().batch(indices, mine) + (body if along else b"")

        def answer(self, kind, asked, mine):
            return (p.A_PARTS, body) if kind == p.PARTS else super().answer(kind, asked, mine)

    serve(Liar, parts=True)
    with lcache.connect(path, timeout=10) as job:
        batch = job.get([1])
        for view in ("samples", "parts"):
            with pytest.raises(lcache.ProtocolError):
                getattr(batch, view)


def test_parts_of_too_few_samples(serve, path):
    class Liar(Server):
        def batch(self, indices, mine):
            return super().batch(indices, mine) + parts(1, 1, 1, 0, 16, 1, tail=b"a")

    serve(Liar, parts=True)
    with lcache.connect(path, timeout=10) as job:
        assert [list(parts) for parts in job.get([1]).parts] == [["a"]]
        with pytest.raises(lcache.ProtocolError, match="2 samples has the parts of 1"):
            job.get([1, 2]).samples


@pytest.mark.parametrize("body", [b"", b"nothing", b"[]", b"1", b'"', b"[" * 100000, b"\xff\xfe", b"9" * 10000])
def test_lies_about_status(serve, path, body):
    class Liar(Server):
        def answer(self, kind, asked, mine):
            return p.A_JSON, body

    serve(Liar)
    with lcache.connect(path, timeout=10) as job, pytest.raises(lcache.ProtocolError):
        job.stats()


RAW = {
    "length 0": struct.pack("<IBBHI", 0, 1, p.A_JSON, 0, 2),
    "length 7": struct.pack("<IBBHI", 7, 1, p.A_JSON, 0, 2),
    "length over the cap": struct.pack("<IBBHI", p.MAX_FRAME + 1, 1, p.A_JSON, 0, 2),
    "length 4 GiB": struct.pack("<IBBHI", 0xFFFFFFFF, 1, p.A_JSON, 0, 2),
    "other version": struct.pack("<IBBHI", 8, 2, p.A_JSON, 0, 2),
    "flags": struct.pack("<IBBHI", 8, 1, p.A_JSON, 1, 2),
    "answer to nothing": p.frame(p.A_JSON, 4711, b"{}"),
    "answer to request 0": p.frame(p.A_JSON, 0, b"{}"),
    "http": b"HTTP/1.1 400 Bad Request\r\n\r\n",
}


@pytest.mark.parametrize("raw", RAW)
def test_raw_garbage(serve, path, raw):
    class Garbage(Server):
        def answer(self, kind, body, mine):
            self.connections[-1].sendall(RAW[raw])

    serve(Garbage)
    with lcache.connect(path, timeout=10) as job, pytest.raises(lcache.ProtocolError):
        job.stats()


def test_error_frame_of_another_version(serve, path):
    """The layout of ERROR never changes, so a client reads it from any version."""

    class Newer(Server):
        def welcome(self, s, request):
            body = fakeserver.error("protocol", "server speaks protocol 9, client 1")[1]
            s.sendall(struct.pack("<IBBHI", 8 + len(body), 9, p.A_ERROR, 4, request) + body)

    serve(Newer)
    with pytest.raises(lcache.ProtocolError, match="server speaks protocol 9, client 1"):
        lcache.connect(path, timeout=10)


HELLOS = {
    "no descriptor": (0, {}),
    "two descriptors": (2, {}),
    "no fingerprint": (1, {"fingerprint": None}),
    "samples as text": (1, {"samples": "1000"}),
    "samples as bool": (1, {"samples": True}),
    "ranks as number": (1, {"ranks": 1}),
}


@pytest.mark.parametrize("case", HELLOS)
def test_lies_in_hello(serve, path, case):
    fds, changes = HELLOS[case]

    class Liar(Server):
        def welcome(self, s, request):
            frame = p.frame(p.A_JSON, request, json.dumps({**self.info, **changes}).encode())
            socket.send_fds(s, [frame], [self.readable] * fds) if fds else s.sendall(frame)

    serve(Liar)
    open_before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(lcache.ProtocolError):
        lcache.connect(path, timeout=10)
    assert len(os.listdir("/proc/self/fd")) <= open_before + 1, "a received descriptor was kept"  # + 1: the fake server's own socket


@pytest.mark.parametrize("what", ["unsealed", "empty", "a file", "a pipe"])
def test_memory_that_could_vanish(serve, path, what, tmp_path):
    """Unsealed memory could be truncated while it is mapped, and the next read of a sample would kill the process."""

    class Liar(Server):
        def welcome(self, s, request):
            os.close(self.readable)
            if what == "a file":
                (tmp_path / "f").write_bytes(b"x" * 9999)
                self.readable = os.open(tmp_path / "f", os.O_RDONLY)
            elif what == "a pipe":
                self.readable, w = os.pipe()
                os.close(w)
            else:
                w, self.readable = fakeserver.memory(0 if what == "empty" else 4096, 0 if what == "unsealed" else None)
                os.close(w)
            super().welcome(s, request)

    serve(Liar)
    with pytest.raises(lcache.ProtocolError):
        lcache.connect(path, timeout=10)
