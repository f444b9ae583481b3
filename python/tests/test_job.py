"""Uses of a job without any faults."""

import json
import logging
import os
import pickle
import struct
import subprocess
import sys
import threading
from array import array

import fakeserver
import pytest
from conftest import check
from fakeserver import BATCHES, Server, content, order

import lcache
from lcache._client import protocol


def test_facts(job):
    assert (job.samples, job.epochs, job.batch_size, job.world, job.ranks) == (1000, 3, 8, 2, [0, 1])
    assert (job.classes, job.fingerprint, job.recipe, job.seed, job.drop_last) == (["a", "b"], "f00d", "", "0", False)
    assert (job.name, job.source) == ("fake", "nowhere")


@pytest.mark.parametrize("start", [0, 1, BATCHES - 1, BATCHES, BATCHES + 3])
def test_epoch_in_order(job, start):
    seen = 0
    for number, batch in enumerate(job.epoch(2, rank=1, start=start), start):
        check(batch, order(2, 1, number))
        seen += 1
    assert seen == max(0, BATCHES - start)


def test_asks_ahead(job):
    iterator = job.epoch(0)
    next(iterator)
    assert job.server.wait_for(lambda: [k for k, _ in job.server.requests].count(protocol.CHUNK) == 2)
    iterator.close()


def test_iterators_interleaved_and_one_abandoned(job):
    a, b, c = job.epoch(0, rank=0), job.epoch(0, rank=1), job.epoch(1, rank=0)
    next(c)
    for number in range(BATCHES):
        check(next(a), order(0, 0, number))
        check(next(b), order(0, 1, number))
        if number == 2:
            c.close()
    with pytest.raises(StopIteration):
        next(a)
    b.close()
    assert job.server.wait_for(lambda: not job.server.leases), "the abandoned iterator's next batch was not released"


def test_get(job):
    check(job.get([5, 3, 9, 3, 50]), [5, 3, 9, 3, 50])
    check(job.get((i for i in (1, 2)), at=(0, 0, 3)), [1, 2])
    check(job.get([]), [])
    gets = [body for kind, body in job.server.requests if kind == protocol.GET]
    assert gets[0][:12] == b"\xff" * 12
    assert gets[1][:12] == bytes([0] * 8 + [3, 0, 0, 0])


@pytest.mark.parametrize("indices", [[-1], [1 << 32], ["x"], [1.5], 7, [1000]])
def test_get_refuses(job, indices):
    with pytest.raises(lcache.ArgumentError) as e:
        job.get(indices)
    assert isinstance(e.value, ValueError)
    check(job.get([1]), [1])


@pytest.mark.parametrize("position", [(-1, 0, 0), (0, -1, 0), (0, 0, -1), (0, 1 << 32, 0)])
def test_epoch_refuses(job, position):
    with pytest.raises(lcache.ArgumentError):
        next(job.epoch(*position))


def test_batch(job):
    batch = job.get(range(1, 13))
    assert len(batch) == len(batch.samples) == len(batch.parts) == 12
    assert batch.samples[-1].tobytes() == content(12)
    assert [v.tobytes() for v in batch.samples[2:4]] == [content(3), content(4)]
    assert [list(p) for p in batch.parts] == [[""]] * 12
    assert batch.parts[1][""] == batch.parts[1:2][0][""] == content(2)
    with pytest.raises(IndexError):
        batch.samples[12]
    with pytest.raises(TypeError):
        batch.samples[1][0] = 1
    assert repr(batch) == "<lcache.Batch of 12 samples>"
    batch.release()
    with pytest.raises(lcache.Error):
        batch.samples
    assert list(batch.indices) == list(range(1, 13))


def test_names(job):
    names = job.get([1, 3, *range(4, 14)]).names
    assert names[:2] == ["dir/1.jpg", "\udcff3"]
    assert names[-1] == "dir/13.jpg"
    assert len(names) == 12
    batch = job.get([1])
    assert batch.names is batch.names, "asked twice"


def test_stats(job):
    assert job.stats() == {"schema": 1, "jobs": []}


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        (list(range(20)), [8, 8, 4]),
        (bytes(range(9)), [8, 1]),
        (array("I", range(9)), [8, 1]),
        (array("q", range(9)), [8, 1]),
        ([[1, 2], [3], []], [2, 1, 0]),
        ([], []),
        (range(8), [8]),
        (iter([1, 2]), [2]),
    ],
)
def test_push_order(job, given, sizes):
    flat = [1, 2] if not hasattr(given, "__len__") else [i for b in given for i in b] if given and not isinstance(given[0], int) else list(given)
    job.push_order(1, 0, given)
    assert job.server.pushed[1, 0] == (sizes, flat)


def test_a_pushed_order_is_read_as_it_was_pushed(job):
    """A pushed epoch is read by index, from any batch on, whatever other jobs push. All other epochs have the server's order."""
    batches = [[5, 3, 9], [2], [7, 7]]
    job.push_order(1, 0, batches)
    assert [list(batch.indices) for batch in job.epoch(1)] == batches
    job.push_order(2, 0, batches)
    read = job.epoch(2, start=1)
    check(next(read), [2])
    job.push_order(2, 0, [[1]])
    assert [list(batch.indices) for batch in read] == [[7, 7]], "an epoch keeps the order that it began with"
    assert [list(batch.indices) for batch in job.epoch(2)] == [[1]]
    job.push_order(3, 0, [])
    assert list(job.epoch(3)) == []
    check(next(job.epoch(4)), order(4, 0, 0))


class WithParts(Server):
    """A server whose samples have two parts, a first one of one byte and the rest. Empty samples have none."""

    along = False  # the parts are sent with each batch

    def batch(self, indices, mine):
        return super().batch(indices, mine) + (self.parts(indices) if self.along else b"")

    def answer(self, kind, body, mine):
        if kind != protocol.PARTS:
            return super().answer(kind, body, mine)
        return protocol.A_PARTS, self.parts(list(memoryview(body)[4:].cast("I"))[:3])  # fewer than requested

    def parts(self, indices):
        lengths = [len(content(i)) for i in indices]
        counts = [2 if n else 0 for n in lengths]
        columns = [v for n in lengths if n for v in (0, 1, 1, n - 1)]
        head = struct.pack(f"<{2 + len(counts) + len(columns) + 2}I", len(indices), 2, *counts, *columns, 3, 2)
        return head + b"cls\xff\n"


@pytest.mark.parametrize("along, indices", [(False, [1, 50, 7, 3, 2, 2, 9]), (True, [1, 50, 7, 3, 2, 2, 9]), (True, [1, 4, 7, 3, 2, 2, 9])])
@pytest.mark.parametrize("credit", [1 << 20, 1])
def test_parts(serve, path, credit, along, indices):
    """Sample 50 is empty and has no parts. The others have the same extensions."""
    server = serve(WithParts, parts=True, credit_bytes=credit)
    server.along = along
    with lcache.connect(path, timeout=10) as job:
        batch = job.get(indices)
        assert [bytes(view) for view in batch.samples] == [content(i)[:1] for i in batch.indices]
        for i, parts in enumerate(batch.parts):
            whole = content(batch.indices[i])
            assert {ext: bytes(view) for ext, view in parts.items()} == ({"cls": whole[:1], "\udcff\n": whole[1:]} if whole else {"": b""})
            assert list(batch.parts[i]) == list(parts)
        assert len(batch.parts) == len(batch.samples) == 7
        assert [bytes(v) for v in batch.samples[1:3]] == [content(indices[1])[:1], content(7)[:1]]
        assert bytes(batch.parts[-1]["cls"]) == bytes(batch.samples[-1]) == content(9)[:1]
        assert sum(kind == protocol.PARTS for kind, _ in server.requests) == (0 if along else 3), "asked once for all, three at a time"
        kept = batch.parts[0]["\udcff\n"]
        batch.release()
        assert bytes(kept) == content(1)[1:]
        with pytest.raises(lcache.Error, match="released"):
            batch.parts


def test_no_parts(job):
    batch = job.get([1, 50])
    assert [{ext: bytes(view) for ext, view in parts.items()} for parts in batch.parts] == [{"": content(1)}, {"": b""}]
    assert not any(kind == protocol.PARTS for kind, _ in job.server.requests)


def test_push_order_in_pieces(job, monkeypatch):
    monkeypatch.setattr(protocol, "PUSH_PIECE", 20)
    job.push_order(0, 1, list(range(101)))
    assert job.server.pushed[0, 1] == ([8] * 12 + [5], list(range(101)))
    pushes = [body for kind, body in job.server.requests if kind == protocol.PUSH]
    assert len(pushes) == 7
    assert [body[12] for body in pushes] == [1] * 6 + [0]


def test_credits(serve, path, caplog):
    server = serve(credit_bytes=600)
    job = lcache.connect(path, timeout=10)
    with caplog.at_level(logging.WARNING, "lcache"):
        kept = list(job.epoch(0)) + list(job.epoch(1))
    for number, batch in enumerate(kept):
        check(batch, order(number // BATCHES, 0, number % BATCHES))
    assert server.wait_for(lambda: 0 < len(server.leases) < 4)
    assert 0 < job._link.session.held <= 600
    assert [r.name for r in caplog.records] == ["lcache"], "one warning"
    job.close()
    for number, batch in enumerate(kept):
        check(batch, order(number // BATCHES, 0, number % BATCHES))


def test_credits_count_pinned_bytes(serve, path):
    server = serve(credit_bytes=100 << 10)
    server.pinned = 30
    job = lcache.connect(path, timeout=10)
    kept = [job.get([i]) for i in range(1, 9)]
    assert job._link.session.held == 90 << 10
    assert server.wait_for(lambda: len(server.leases) == 3)
    for i, batch in enumerate(kept, 1):
        check(batch, [i])
    job.close()


def test_one_batch_is_never_copied(serve, path, caplog):
    serve(credit_bytes=1)
    with lcache.connect(path, timeout=10) as job:
        for batch in job.epoch(0):
            del batch
    assert not caplog.records


def test_pickle(job, path):
    data = pickle.dumps(job)
    assert len(data) < 1000
    script = "import pickle, sys; job = pickle.loads(sys.stdin.buffer.read()); print(bytes(job.get([7]).samples[0]).decode(), job.batch_size)"
    done = subprocess.run([sys.executable, "-c", script], input=data, capture_output=True, timeout=30, check=True, env={"PYTHONPATH": ":".join(sys.path)})
    assert done.stdout.decode().split() == [content(7).decode(), "8"]
    assert len(job.server.hellos) == 2


def test_threads(job):
    """Several threads, each with its own iterator and requests. Views are dropped at any point."""
    failures = []

    def work(seed):
        try:
            kept = []
            for epoch in range(3):
                for number, batch in enumerate(job.epoch(epoch, rank=seed)):
                    check(batch, order(epoch, seed, number))
                    indices = [(seed * 31 + number * 7 + i) % fakeserver.SAMPLES for i in range(number + 1)]
                    got = job.get(indices)
                    check(got, indices)
                    kept.append((got.samples[0][1:], content(indices[0])[1:]))
                    del got, batch
                    if len(kept) > 4:
                        view, want = kept.pop(0)
                        assert view == want
                        del view
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert failures == []
    assert job._link.session.held == 0
    assert job.server.wait_for(lambda: not job.server.leases)


def test_no_socket_given(monkeypatch, serve, path):
    monkeypatch.delenv("LCACHE_SOCKET", raising=False)
    with pytest.raises(lcache.Error, match="LCACHE_SOCKET"):
        lcache.connect()
    with pytest.raises(lcache.ArgumentError, match=f"it is a directory; give the socket in it, .*{os.path.basename(os.path.dirname(path))}/lcache.sock"):
        lcache.connect(os.path.dirname(path))
    serve()
    monkeypatch.setenv("LCACHE_SOCKET", path)
    with lcache.connect() as job:
        assert job.samples == 1000


@pytest.mark.parametrize("made", [None, "file", "dead socket"])
def test_no_server(tmp_path, made, serve, path):
    where = tmp_path / "none.sock"
    if made == "file":
        where.write_text("x")
    if made == "dead socket":
        serve().stop_accepting()
        where = path
    with pytest.raises(lcache.ConnectionError, match="sock") as e:
        lcache.connect(where, timeout=30)
    assert isinstance(e.value, ConnectionError)


def test_long_path(tmp_path):
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    server = fakeserver.Server(str(tmp_path / "s.sock"))
    (tmp_path / "s.sock").rename(deep / "s.sock")
    with lcache.connect(deep / "s.sock", timeout=10) as job:
        check(job.get([1]), [1])
    server.stop()


def test_closed(job):
    iterator = job.epoch(0)
    next(iterator)
    job.close()
    for use in (lambda: next(iterator), lambda: job.get([1]), lambda: next(job.epoch(0)), job.stats):
        with pytest.raises(lcache.Error, match="closed"):
            use()
    assert job.samples == 1000
    assert job.server.wait_for(lambda: job.server.byes == 1)


@pytest.mark.parametrize("features", [["report"], ["later"], None])
def test_report(serve, path, features):
    """The frame is sent only to servers that list it as a feature. An older server lists no features."""
    server = serve(**({} if features is None else {"features": features}))
    with lcache.connect(path, timeout=10) as job:
        job.report(decode=0.25)
        job.report(2, 1, loop_wait=-0.1, loop=3.5, workers=70000)
        job.stats()
    with server.lock:
        said = [json.loads(body) for kind, body in server.requests if kind == protocol.REPORT]
    worker, loop = {"decode_seconds": 0.25}, {"decode_seconds": 0.0, "epoch": 2, "rank": 1, "loop_wait_seconds": 0.0, "loop_seconds": 3.5, "workers": 65535}
    assert said == ([worker, loop] if features == ["report"] else [])
