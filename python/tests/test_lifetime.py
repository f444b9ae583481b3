"""Bytes stay unchanged as long as anything refers to them. The lease ends soon after."""

import gc
import os
import subprocess
import sys
import threading
import weakref

import pytest
from conftest import check
from fakeserver import Server, content, error, order

import lcache
from lcache._client import protocol, releases

VIEWS = {
    "sample": lambda batch: batch.samples[1],
    "slice": lambda batch: batch.samples[1][0:],
    "slice of a slice": lambda batch: batch.samples[1][0:][::1],
    "cast": lambda batch: batch.samples[1].cast("c"),
    "part": lambda batch: batch.parts[1][""],
    "list": lambda batch: batch.samples[0:2][1],
    "iterated": lambda batch: list(batch.samples)[1],
    "memoryview": lambda batch: memoryview(batch.samples[1]),
}


@pytest.mark.parametrize("how", VIEWS)
def test_view_outlives_all_else(job, how):
    batch = job.get([1, 2, 3])
    view = VIEWS[how](batch)
    batch.release()
    del batch
    gc.collect()
    for i in range(100, 140):
        check(job.get([i]), [i])  # released memory is overwritten
    assert bytes(view) == content(2)
    assert len(job.server.leases) >= 1
    del view
    assert job.server.wait_for(lambda: not job.server.leases)


def test_release_frees_at_once(job):
    batch = job.get([1])
    batch.release()
    assert job.server.wait_for(lambda: not job.server.leases), "release() while nothing else happens"


def test_loop_variable_is_the_only_reference(job):
    iterator = job.epoch(0)
    batch = next(iterator)
    ref = weakref.ref(batch)
    del batch
    assert ref() is None, "the iterator holds the batch that it gave out"
    iterator.close()


def test_array_from_buffer(job):
    numpy = pytest.importorskip("numpy", reason="numpy is not installed: arrays over views are not tested")
    batch = job.get([3])
    array = numpy.frombuffer(batch.samples[0], dtype=numpy.uint8)[2:].reshape(-1, 2)
    del batch
    job.get([4])
    assert array.tobytes() == content(3)[2:]
    assert not array.flags.writeable
    assert job.server.leases
    del array
    assert job.server.wait_for(lambda: not job.server.leases)


def test_close_leaves_views(serve, path):
    server = serve()
    job = lcache.connect(path, timeout=10)
    iterator = job.epoch(0)
    view = next(iterator).samples[1]
    job.close()
    assert bytes(view) == content(order(0, 0, 0)[1])
    assert server.wait_for(lambda: len(server.leases) == 1), "the batch asked for ahead is given back by close()"
    assert server.byes == 0
    del view
    assert server.wait_for(lambda: server.byes == 1 and not server.leases)


def test_job_dropped_without_close(serve, path):
    server = serve()
    view = lcache.connect(path, timeout=10).get([7]).samples[0]
    gc.collect()
    assert bytes(view) == content(7)
    assert server.leases
    del view
    assert server.wait_for(lambda: server.byes == 1 and not server.leases)


def test_mapping_ends_with_the_last_view(serve, path):
    def mapped():
        with open("/proc/self/maps") as f:
            return f.read().count(f" {os.fstat(server.readable).st_ino} ")

    server = serve()
    job = lcache.connect(path, timeout=10)
    batch = job.get([1])
    assert mapped() == 1
    job.close()
    assert mapped() == 1
    del batch
    releases.act()
    assert server.wait_for(lambda: server.byes == 1) and mapped() == 0


def test_exit_with_live_batches_is_quiet(serve, path):
    serve()
    script = f"import json, lcache; job = lcache.connect({path!r}); kept = [job.get([i]).samples[0] for i in range(5)]; it = job.epoch(0); b = next(it)"
    last = "; import sys; sys.kept = json; json.kept = job, kept, it, b"  # cleared after lcache's modules, because an older module refers to it
    for end in ("", "; import os; os.fork()", "; raise SystemExit(3)", last):
        done = subprocess.run(
            [sys.executable, "-c", script + end], capture_output=True, timeout=30, env={"PYTHONPATH": ":".join(sys.path), "PYTHONWARNINGS": "ignore"}
        )
        assert (done.returncode, done.stderr) == (3 if "3" in end else 0, b"")


def test_descriptors_are_closed(serve, path):
    before = len(os.listdir("/proc/self/fd"))
    server = serve()
    idle = len(os.listdir("/proc/self/fd")) - before
    for _ in range(5):
        with lcache.connect(path, timeout=10) as job:
            job.get([1])
    for connection in server.connections:
        connection.close()
    assert len(os.listdir("/proc/self/fd")) == before + idle


def test_last_view_dies_in_another_thread_while_this_one_waits(serve, path):
    """The server may need the bytes that another thread drops to answer this one. So the RELEASE must not wait for the answer."""

    class Silent(Server):
        silent = True

        def answer(self, kind, body, mine):
            if kind == protocol.STATUS and self.silent:
                return None
            return super().answer(kind, body, mine)

    server = serve(Silent)
    job = lcache.connect(path, timeout=20)
    held = [job.get([1])]
    got = []
    waiter = threading.Thread(target=lambda: got.append(job.stats()))
    waiter.start()
    assert server.wait_for(lambda: server.requests[-1][0] == protocol.STATUS)
    dropper = threading.Thread(target=held.clear)
    dropper.start()
    assert server.wait_for(lambda: server.released == 1)
    assert not got
    server.silent = False
    server.drop_connections()
    waiter.join(20)
    assert got == [{"schema": 1, "jobs": []}]
    dropper.join()
    job.close()


def test_garbage_cycles(job):
    """A finalizer may run in any allocation, even while the client holds its own lock."""
    threshold = gc.get_threshold()
    gc.set_threshold(5, 2, 2)
    try:
        for epoch in range(4):
            for number, batch in enumerate(job.epoch(epoch)):
                check(batch, order(epoch, 0, number))
                cycle = [batch.samples[0], batch, job.epoch(epoch, start=2)]
                cycle.append(cycle)
                next(cycle[2])
                del cycle, batch
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    assert job.server.wait_for(lambda: not job.server.leases)
    assert job._link.session.held == 0


@pytest.mark.parametrize("trouble", ["lost", "error", "timeout"])
def test_exceptions_do_not_keep_views(serve, path, trouble):
    """A kept exception refers to its stack frames, and they to the views in their variables."""

    class Troubled(Server):
        lost = False

        def answer(self, kind, body, mine):
            if kind == protocol.STATUS and trouble == "lost":
                if not self.lost:
                    self.lost = True
                    self.drop_connections()
            elif kind == protocol.STATUS:
                return error("internal", "no") if trouble == "error" else None
            return super().answer(kind, body, mine)

    serve(Troubled)
    job = lcache.connect(path, timeout=10)

    def use():
        view = job.get([1]).samples[0]
        if trouble == "lost":
            job.stats()
        else:
            job._link.timeout = 0.05
            with pytest.raises(lcache.Error):
                job.stats()
        return bytes(view)

    gc.disable()
    try:
        assert use() == content(1)
        job._link.timeout = 10
        job.get([3])
        assert job._link.session.held == 0
    finally:
        gc.enable()
    job.close()
