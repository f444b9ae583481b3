"""A server without room for a batch lends it in parts, by temporary leases. The client copies them, and uses a copy only if its lease still held afterwards."""

import logging
import os
import struct
import threading

import pytest
from conftest import check
from fakeserver import BATCHES, SAMPLES, Server, error, order

import lcache
from lcache._client import protocol as p


class Full(Server):
    """Answers every CHUNK and GET by "room". It lends `part` samples at once. `over` temporary leases end too early, after their bytes were overwritten."""

    part, over = 3, 0

    def __init__(self, *args, **info):
        super().__init__(*args, **info)
        self.lent = {}

    def answer(self, kind, body, mine):
        if kind in (p.CHUNK, p.GET) and (kind == p.GET or struct.unpack("<III", body)[2] < BATCHES):
            return error("room", "side memory is full; process 1 holds 5 bytes of it")
        if kind == p.LEND:
            asked, first = struct.unpack_from("<II", body)
            if asked == p.GET:
                indices = list(memoryview(body)[24:].cast("I"))
            else:
                indices = order(*struct.unpack_from("<III", body, 8))
            return p.A_LOAN, self.loan(indices, first, mine)
        if kind == p.COPIED:
            (loan,) = struct.unpack("<Q", body)
            self.end(mine, [loan])
            return error("late", "the loan had ended") if self.lent.pop(loan) else (p.A_OK, b"")
        return super().answer(kind, body, mine)

    def loan(self, indices, first, mine):
        part = indices[first : first + self.part]
        said = self.batch(part, mine)
        lease, count, _ = struct.unpack_from("<QII", said)
        with self.lock:
            self.lent[lease] = self.over > 0
            if self.over > 0:
                self.over -= 1
                os.pwrite(self.writable, b"\xee" * self.slot_bytes, self.leases[lease] * self.slot_bytes)
        return struct.pack("<QIII", lease, count, first + len(part), len(indices)) + said[16:]


def test_get(serve, path, caplog):
    server = serve(Full)
    with lcache.connect(path, timeout=10) as job, caplog.at_level(logging.WARNING, "lcache"):
        for indices in ([5, 3, 9, 3, 50, 7, 8], [1], [50, 100], []):
            check(job.get(indices), indices)
        kept = job.get(range(40))
        job.get(range(100, 140))
        check(kept, range(40))
    assert not server.leases
    assert [r.message for r in caplog.records if "copied" in r.message] == [
        "the batches that this or another process keeps hold the server's shared memory: batches without room in it are copied"
    ]
    assert all(said["features"] == ["lend", "requested", "parts"] for said in server.hellos)


def test_epoch(serve, path):
    serve(Full)
    with lcache.connect(path, timeout=10) as job:
        batches = list(job.epoch(1, rank=0))
        assert len(batches) == BATCHES
        for number, batch in enumerate(batches):
            check(batch, order(1, 0, number))


def test_loan_that_ends_too_early(serve, path):
    """Copies made after the end of a temporary lease are dropped, and requested again."""
    server = serve(Full)
    with lcache.connect(path, timeout=10) as job:
        server.over = 4
        check(job.get(range(1, 20)), range(1, 20))
        assert server.over == 0


def test_threads(serve, path):
    serve(Full)
    with lcache.connect(path, timeout=20) as job:
        wrong = []

        def read(k):
            for i in range(10):
                try:
                    check(job.get(range(k * 20 + i, k * 20 + i + 9)), range(k * 20 + i, k * 20 + i + 9))
                except BaseException as e:
                    wrong.append(e)

        threads = [threading.Thread(target=read, args=(k,)) for k in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not wrong


def test_another_run_of_the_server_does_not_confirm(serve, path):
    """A temporary lease of a server that ended is never valid, whatever the next server answers for its number."""

    class Dying(Full):
        def answer(self, kind, body, mine):
            if kind == p.COPIED and not hasattr(self, "died"):
                self.died = True
                self.info["server"], self.info["token"] = "another run", "t2"
                for slot in range(self.slots):
                    os.pwrite(self.writable, b"\xee" * self.slot_bytes, slot * self.slot_bytes)
                self.drop_connections()
                return None
            if kind == p.COPIED:
                self.lent.setdefault(struct.unpack("<Q", body)[0], False)
            return super().answer(kind, body, mine)

    server = serve(Dying)
    with lcache.connect(path, timeout=10) as job:
        check(job.get(range(1, 9)), range(1, 9))
        assert [kind for kind, _ in server.requests].count(p.COPIED) >= 5  # three parts, the first one at least three times: a connection may end during the next one


LIES = {
    "no progress": (p.A_LOAN, struct.pack("<QIII", 1, 0, 0, 2)),
    "past the end": (p.A_LOAN, struct.pack("<QIII", 1, 0, 3, 2)),
    "more than fits": (p.A_LOAN, struct.pack("<QIII", 1, 0, 1, 0xFFFFFFFF)),
    "fewer than it says": (p.A_LOAN, struct.pack("<QIII", 1, 0, 2, 2)),
    "more than it says": (p.A_LOAN, struct.pack("<QIII2Q2I2I2i", 1, 2, 1, 2, 0, 0, 1, 1, 1, 2, 0, 0)),
    "other indices": (p.A_LOAN, struct.pack("<QIII2Q2I2I2i", 1, 2, 2, 2, 0, 0, 1, 1, 1, 3, 0, 0)),
    "beyond the map": (p.A_LOAN, struct.pack("<QIII2Q2I2I2i", 1, 2, 2, 2, 0, 1 << 40, 1, 1, 1, 2, 0, 0)),
    "not of the dataset": (p.A_LOAN, struct.pack("<QIII2Q2I2I2i", 1, 2, 2, 2, 0, 0, 1, 1, 1, SAMPLES, 0, 0)),
    "half a head": (p.A_LOAN, b"\0" * 19),
    "a BATCH": (p.A_BATCH, b"\0" * 16),
    "the end": (p.A_END, b""),
}


@pytest.mark.parametrize("lie", LIES)
def test_lies_about_a_loan(serve, path, lie):
    class Liar(Full):
        def answer(self, kind, body, mine):
            if kind == p.COPIED:
                return p.A_OK, b""
            return LIES[lie] if kind == p.LEND else super().answer(kind, body, mine)

    serve(Liar)
    with lcache.connect(path, timeout=10) as job:
        with pytest.raises(lcache.ProtocolError):
            job.get([1, 2])


def test_no_loan_in_time(serve, path):
    class Late(Full):
        def answer(self, kind, body, mine):
            answer = super().answer(kind, body, mine)
            return error("late", "the loan had ended") if kind == p.COPIED else answer

    serve(Late)
    with lcache.connect(path, timeout=0.2) as job:
        with pytest.raises(lcache.TimeoutError, match="2 samples by index"):
            job.get([1, 2])
