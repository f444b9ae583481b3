"""Mutated answers of a server: the client decodes valid ones, or raises lcache.Error. It never crashes or hangs.

LCACHE_FUZZ_TIME is the duration (such as "2s", in Go's notation), and LCACHE_SEED the seed of the mutations.
"""

import contextlib
import json
import os
import random
import re
import socket
import struct
import time

import pytest
from conftest import check
from fakeserver import Server

import lcache
from lcache._client import connection
from lcache._client import protocol as p
from lcache._client.info import Info
from lcache._client.parts import AlikeParts, read_parts
from lcache._client.server_errors import error_of

SEED = int(os.environ.get("LCACHE_SEED") or random.randrange(1 << 31))
MEMORY, SAMPLES = 1 << 33, 100_000  # of the server that sends the answers
NUMBERS = (0, 1, 2, 7, 0x7F, 0xFF, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)


def seconds():
    """LCACHE_FUZZ_TIME."""
    text = os.environ.get("LCACHE_FUZZ_TIME") or "2s"
    found = re.findall(r"([0-9.]+)(h|ms|m|s)", text)
    assert found and "".join(map("".join, found)) == text, f"LCACHE_FUZZ_TIME={text} is not a duration"
    return sum(float(n) * {"h": 3600, "m": 60, "s": 1, "ms": 0.001}[unit] for n, unit in found)


def mutated(data, rng):
    data = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        how, at = rng.randrange(6), rng.randrange(min(len(data), 64)) if rng.random() < 0.7 else rng.randrange(len(data))
        if how == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif how == 2:
            del data[at : at + rng.randrange(1, 9)]
        elif how == 3:
            data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9)))
        elif how == 4:  # changes a number; most have four bytes
            data[at & ~3 : (at & ~3) + 4] = struct.pack("<I", rng.choice(NUMBERS))
        else:
            del data[at:]
        if not data:
            return b"\0"
    return bytes(data)


def u32(*numbers):
    return struct.pack(f"<{len(numbers)}I", *numbers)


def word(rng):
    return bytes(rng.choice(b"ab/.\xff\xc3\xa9") for _ in range(rng.randrange(6)))


def text(said):
    return said.decode("utf-8", "surrogateescape")


# For each kind of answer: a function that makes a valid one with the expected result `want`, one that reads it, and one that checks any result.


def batch(rng):
    n = rng.randrange(40)
    lengths = [rng.choice((0, 1, rng.randrange(1 << 20))) for _ in range(n)]
    offsets = [rng.randrange(MEMORY - length + 1) for length in lengths]
    indices, labels = [rng.randrange(SAMPLES) for _ in range(n)], [rng.randrange(-(1 << 31), 1 << 31) for _ in range(n)]
    lease, kib = rng.randrange(1 << 64), rng.choice((0, rng.randrange(1 << 32)))
    body = struct.pack(f"<QII{n}Q{n}I{n}I{n}i", lease, n, kib, *offsets, *lengths, *indices, *labels)

    def read(body):
        assert p.read_lease(body) in (None, *struct.unpack_from("<Q", body.ljust(8, b"\0")))
        c = p.read_batch(body, MEMORY, SAMPLES)
        assert len(c.offsets) == len(c.lengths) == len(c.indices) == len(c.labels) == (len(body) - 16) // 20
        assert all(offset + length <= MEMORY for offset, length in zip(c.offsets, c.lengths))
        assert all(index < SAMPLES for index in c.indices)
        assert c.pinned >= sum(c.lengths)
        return c.lease, c.pinned, list(c.offsets), list(c.lengths), list(c.indices), list(c.labels)

    return p.A_BATCH, body, read, (lease, max(kib << 10, sum(lengths)), offsets, lengths, indices, labels)


def served(rng):
    _, body, _, want = batch(rng)
    requested = [rng.randrange(SAMPLES) for _ in want[-1]]

    def read(body):
        c = p.read_batch(body, MEMORY, SAMPLES, served=True)
        assert len(c.offsets) == len(c.lengths) == len(c.indices) == len(c.labels) == len(c.requested) == (len(body) - 16) // 24
        assert all_within(c) and all(index < SAMPLES for index in c.requested)
        return c.lease, c.pinned, list(c.offsets), list(c.lengths), list(c.indices), list(c.labels), list(c.requested)

    return p.A_SERVED, body + u32(*requested), read, (*want, requested)


def loan(rng):
    _, columns, _, (_, _, *want) = batch(rng)
    n = len(want[0])
    first, number = rng.randrange(100), rng.randrange(1 << 64)
    after = first + max(n, 1)
    total = after + rng.randrange(100)

    def read(body):
        c, end, all = p.read_loan(body, first, MEMORY, SAMPLES)
        assert len(c.offsets) == len(c.lengths) == len(c.indices) == len(c.labels) == (len(body) - 20) // 20
        assert all_within(c) and first <= end <= all <= p.MAX_BATCH and len(c.lengths) <= end - first and (end > first or end == all)
        return c.lease, end, all, list(c.offsets), list(c.lengths), list(c.indices), list(c.labels)

    return p.A_LOAN, struct.pack("<QIII", number, n, after, total) + columns[16:], read, (number, after, total, *want)


def all_within(columns):
    inside = all(offset + length <= MEMORY for offset, length in zip(columns.offsets, columns.lengths))
    return inside and all(index < SAMPLES for index in columns.indices)


def names(rng):
    said = [word(rng) for _ in range(rng.randrange(1, 9))]
    asked = len(said) + rng.randrange(3)

    def read(body):
        got = p.read_names(body, asked)
        assert 1 <= len(got) <= asked and sum(len(os.fsencode(name)) for name in got) == len(body) - 4 - 4 * len(got)
        return got

    return p.A_NAMES, u32(len(said), *map(len, said)) + b"".join(said), read, [text(name) for name in said]


def parts(rng):
    exts = [word(rng) for _ in range(rng.randrange(1, 5))]
    said = [[(rng.randrange(len(exts)), rng.randrange(1000)) for _ in range(rng.randrange(4))] for _ in range(rng.randrange(1, 9))]
    lengths = [sum(size for _, size in sample) if sample else rng.randrange(1000) for sample in said] + [5] * rng.randrange(3)
    flat = [number for sample in said for part in sample for number in part]
    body = u32(len(said), len(exts), *map(len, said), *flat, *map(len, exts)) + b"".join(exts)

    def read(body):
        columns = read_parts(body, lengths)
        got = list(columns)
        if isinstance(columns, AlikeParts):
            assert got == [columns[i] for i in range(len(columns))]
            for ext in {ext for sample in got for ext, _, _ in sample} | {None}:
                firsts = [next(part[1:] for part in sample if ext in (None, part[0])) for sample in got]
                assert list(zip(*columns.part(ext))) == firsts
        assert 1 <= len(got) <= len(lengths)
        for bounds, length in zip(got, lengths):
            ends = [0] + [end for _, _, end in bounds]
            assert [begin for _, begin, _ in bounds] == ends[:-1] and ends[-1] == length and ends == sorted(ends)
        return got

    want = []
    for sample, length in zip(said, lengths):
        bounds, end = [], 0
        for ext, size in sample:
            bounds.append((text(exts[ext]), end, end + size))
            end += size
        want.append(bounds or [("", 0, length)])
    return p.A_PARTS, body, read, want


def hello(rng):
    said = {"pid": 7, "server": "s", "token": "t", "name": text(word(rng)), "source": "/x", "fingerprint": "f00d", "samples": rng.randrange(1 << 32)}
    said |= {"epochs": 3, "batch_size": 8, "world": 2, "ranks": None, "drop_last": False, "recipe": "", "seed": "0", "classes": ["a"], "credit_bytes": 1}
    said |= {"version": "0", "features": [], "more": {"of": [1.5, None, True]}}

    def read(body):
        info = Info.of(p.read_json(body))
        assert all(type(getattr(info, key)) is int for key in ("pid", "samples", "epochs", "batch_size", "world", "credit_bytes"))
        assert type(info.ranks) is type(info.features) is list and type(info.drop_last) is bool and type(info.fingerprint) is str
        return info

    return p.A_JSON, json.dumps(said).encode(), read, Info.of(said)


def indices(rng):
    first, n = rng.randrange(100), rng.randrange(40)
    asked, said = n + rng.randrange(3), [rng.randrange(SAMPLES) for _ in range(n)]
    total = first + n + (rng.randrange(100) if n else 0)

    def read(body):
        whole, got = p.read_indices(body, first, asked, SAMPLES)
        assert len(got) <= asked and first + len(got) <= whole and (len(got) or first == whole) and all(index < SAMPLES for index in got)
        return whole, list(got)

    return p.A_INDICES, u32(total, n, *said), read, (total, said)


def weights(rng):
    said = [rng.randrange(1 << 20) / 1024 for _ in range(rng.randrange(1, 40))]

    def read(body):
        got = p.read_weights(body, len(said))
        assert len(got) == len(said) and all(0 <= weight < float("inf") for weight in got)
        return list(got)

    return p.A_WEIGHTS, u32(len(said)) + struct.pack(f"<{len(said)}f", *said), read, said


def importance(rng):
    said = {"name": text(word(rng)), "lag": "split", "seed": str(rng.randrange(1 << 64)), "epoch_length": rng.randrange(1 << 32), "world_size": 2, "batch_size": 8}

    def read(body):
        got = p.read_importance(body)
        assert all(type(got[key]) is int and got[key] >= 0 for key in ("epoch_length", "world_size", "batch_size"))
        return got

    return p.A_JSON, json.dumps(said).encode(), read, said


def error(rng):
    kind = rng.choice(("sample", "closing", "timeout", "argument", "protocol", "denied", "other"))
    said = {"kind": kind, "message": text(word(rng)), **({"sample": text(word(rng))} if kind == "sample" else {})}
    said.update({} if rng.random() < 0.5 else {"code": f"LC{rng.randrange(20):03}"})

    def read(body):
        assert isinstance(error_of(body, "asking"), (lcache.Error, connection.Broken))
        return p.read_error(body)

    return p.A_ERROR, json.dumps(said).encode(), read, (kind, said["message"], said.get("sample"), None, said.get("code"))


ANSWERS = (batch, served, loan, names, parts, hello, indices, weights, importance, error)


def test_decoder():
    """Valid answers are read correctly. Mutated ones are refused, or give a result that a caller can rely on."""
    print(f"LCACHE_SEED={SEED}")
    outcomes = {kind.__name__: [0, 0] for kind in ANSWERS}
    end, round = time.monotonic() + seconds(), 0
    while time.monotonic() < end:
        rng = random.Random(f"{SEED} {round}")
        _, body, read, want = rng.choice(ANSWERS)(rng)
        name = read.__qualname__.partition(".")[0]
        where = f"LCACHE_SEED={SEED}, round {round}, {name}"
        assert read(body) == want, where
        for _ in range(20):
            bad = mutated(body, rng)
            try:
                read(bad)
                outcomes[name][0] += 1
            except lcache.ProtocolError:
                outcomes[name][1] += 1
            except BaseException as e:
                pytest.fail(f"{where}: {bad!r}: {e!r}")
        round += 1
    print(f"{round} answers, and mutations of each that were read and refused: {outcomes}")
    assert all(min(both) > 0 for both in outcomes.values()), outcomes


def test_stream(monkeypatch):
    """A stream in pieces of any size is split into its answers. A mutated stream gives answers, and the reason why it ends."""
    print(f"LCACHE_SEED={SEED}")
    end, round, outcomes = time.monotonic() + seconds() / 4, 0, [0, 0]
    while time.monotonic() < end:
        rng = random.Random(f"{SEED} {round}")
        answers = [rng.choice(ANSWERS)(rng)[:2] for _ in range(rng.randrange(1, 6))]
        whole = b"".join(p.frame(kind, number, body) for number, (kind, body) in enumerate(answers))
        where = f"LCACHE_SEED={SEED}, round {round}"
        frames, broken = received(monkeypatch, whole, rng)
        assert frames == [(kind, number, body) for number, (kind, body) in enumerate(answers)] and broken is None, where
        bad = mutated(whole, rng)
        frames, broken = received(monkeypatch, bad, rng)
        assert broken is None or isinstance(broken, lcache.ProtocolError), f"{where}: {bad!r}: {broken!r}"
        assert sum(12 + len(body) for _, _, body in frames) <= len(bad), where
        outcomes[broken is not None] += 1
        round += 1
    print(f"{round} streams; of the mutated ones {outcomes[1]} were found broken")
    assert min(outcomes) > 0, outcomes


def received(monkeypatch, data, rng):
    """The frames that a connection reads from these bytes, and the reason if it stops."""
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(connection, "_dial", lambda path, deadline: ours)
    c = connection.Connection("", 0)
    frames, at = [], 0
    while at < len(data) and c.broken is None:
        n = rng.choice((1, 11, 12, 13, 100, len(data)))
        theirs.sendall(data[at : at + n])
        c.receive()
        while (frame := c.frame()) is not None:
            *found, c.received = frame
            frames.append(tuple(found))
        at += n
    broken = c.broken
    c.close()
    theirs.close()
    return frames, broken


def test_client(serve, path):
    """Answers with flipped, missing and added bytes, including the answer to HELLO: the result is an lcache.Error, or the right samples."""
    print(f"LCACHE_SEED={SEED}")
    rng = random.Random(SEED)

    class Fuzz(Server):
        mutate = False

        def welcome(self, s, request):
            body = json.dumps(self.info).encode()
            frame = p.frame(p.A_JSON, request, body)
            if self.mutate:
                self.mutate = False
                socket.send_fds(s, [mutated(frame, rng)], [self.readable])
                raise OSError("close after the lie")
            socket.send_fds(s, [frame], [self.readable])

        def answer(self, kind, body, mine):
            answer = super().answer(kind, body, mine)
            if not self.mutate:
                return answer
            self.mutate = False
            s = self.connections[-1]
            request = self.count_requests
            s.sendall(mutated(p.frame(answer[0], request, answer[1]), rng))
            raise OSError("close after the lie")

        def _serve(self, s):
            super()._serve(s)
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    server = serve(Fuzz, slots=800)
    outcomes = {"right": 0, "error": 0}
    for i in range(400):
        job = lcache.Job(path, timeout=10)
        fuzz_hello = i % 4 == 0
        if not fuzz_hello:
            job.samples  # connects with a valid answer
        server.count_requests = job._link.session._number + 1 if job._link.session else 1
        server.mutate = True
        indices = [rng.randrange(1000) for _ in range(4)]
        try:
            batch = job.get(indices)
            assert list(batch.indices) == indices
            assert len(b"".join(bytes(v) for v in batch.samples)) <= 4 * server.slots * server.slot_bytes
            outcomes["right"] += 1
        except lcache.Error:
            outcomes["error"] += 1
        server.mutate = False
        job.close()
    assert min(outcomes.values()) > 50, outcomes
    with lcache.connect(path, timeout=10) as job:
        check(job.get([3]), [3])
