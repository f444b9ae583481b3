"""How long bytes stay, and when memory is released: views, forks, killed clients, closed connections."""

import os
import signal
import subprocess
import sys
import threading

import numpy
import pytest
from processes import HERE, read_in_processes
from waits import DEADLINE, until
from wire import Wire

import lcache


def leased(cache, pid):
    """The bytes that a process holds, according to the status of the ranks that it has read."""
    return max((r["leased_bytes"] for r in cache.job()["ranks"] if r["pid"] == pid), default=0)


def views_of(batch):
    """Objects that user code makes from samples: arrays, slices, casts, views of views."""
    for index, view in zip(batch.indices, batch.samples):
        size = len(view)
        yield index, 0, size, view
        yield index, 0, size, numpy.frombuffer(view, dtype=numpy.uint8)
        if size >= 16:
            yield index, 3, size - 5, view[3:-5]
            yield index, 8, 16, numpy.frombuffer(view, dtype=numpy.int64, count=1, offset=8)
            yield index, 0, size // 4 * 4, view[: size // 4 * 4].cast("I")
            yield index, 4, 12, numpy.asarray(view)[4:12].reshape(2, 4)[:, :]
            yield index, 2, 9, memoryview(view[2:])[:7]


def test_views_outlive_everything(serve, reader, small):
    """After release(), the iterator's end, close() and the server's restart, all remaining references still see the same bytes."""
    cache = serve(small, world=2, epochs=4, batch_size=8)
    other = reader(cache)
    kept = []

    def check():
        for index, start, stop, view in kept:
            assert view.tobytes() == small.contents[index][start:stop]

    job = cache.connect()
    for number, batch in enumerate(job.epoch(0)):
        if number % 8 == 0:
            kept += views_of(batch)
        batch.release()
        with pytest.raises(lcache.Error):
            batch.samples
    del batch
    assert len(kept) > 100
    assert 0 < job._link.session.held <= job._link.session.info.credit_bytes, "the kept samples must be shared memory, not copies"
    other.ask("epoch", epoch=0, rank=1)
    check()
    job.close()
    other.ask("epoch", epoch=1, rank=1)  # must get other memory than the kept samples
    assert leased(cache, os.getpid()) > 0
    check()
    cache.stop()
    check()
    cache.start()
    other.ask("epoch", epoch=2, rank=1)
    check()
    with pytest.raises((ValueError, TypeError)):
        kept[1][3][0] = 1


def test_fork(serve, small):
    """A child has its own session. It may not read inherited batches, and its actions do not affect its parent's stream and leases."""
    cache = serve(small, epochs=3, batch_size=8)
    expected = cache.batches(0, 0)
    with cache.connect() as job:
        coming = job.epoch(0)
        first = next(coming)
        held = job._link.session.held
        pid = os.fork()
        if pid == 0:
            os._exit(fork_child(cache, job, coming, first))
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert job._link.session.held == held
        for number, batch in enumerate(coming, 1):
            cache.check(batch, expected[number])
        assert number + 1 == len(expected)
        cache.read(job, 1, 0)
        cache.check(first, expected[0])
        cache.check(job.get([5, 4]), [5, 4])


def fork_child(cache, job, coming, first):
    """0 if all checks pass, else the number of the failed check."""
    step = 1
    try:
        cache.read(job, 2, 0, stop=5)
        step = 2
        cache.check(job.get([3, 1, 2]), [3, 1, 2])
        for step, inherited in enumerate((lambda: first.samples[0], lambda: list(first.samples), lambda: next(coming)), 3):
            try:
                inherited()
                return step
            except lcache.Error:
                pass
        step = 6
        job.close()
        return 0
    except BaseException:
        return 100 + step


HOARDER = """
import sys
sys.path.insert(0, sys.argv[1])
import wire
w = wire.Wire(sys.argv[2], timeout=1.5).hello()
held, samples = 0, int(sys.argv[3])
try:
    while True:  # leases that are never released, until the server has no memory for answers
        held += sum(length for _, _, length in w.get([i % samples for i in range(held, held + 40)])[1])
except TimeoutError:
    print("full", held, flush=True)
sys.stdin.read()
"""


def test_a_killed_client_frees_its_memory(serve, reader, small):
    """After kill -9 of a process that holds all memory, the clients that wait for memory continue."""
    cache = serve(small, world=2, epochs=2, memory="24MiB")
    hoarder = subprocess.Popen(
        [sys.executable, "-c", HOARDER, HERE, cache.socket, str(len(small))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        said = hoarder.stdout.readline().split()
        assert said[0] == "full" and int(said[1]) > 1 << 20
        waiting = threading.Event()
        with cache.connect(timeout=DEADLINE) as job:
            got = []

            def ask():
                waiting.set()
                got.append(job.get(list(range(30, 70))))

            thread = threading.Thread(target=ask)
            thread.start()
            assert waiting.wait(DEADLINE)
            hoarder.kill()
            thread.join(DEADLINE)
            assert got, "a client still waits for the memory of a killed process"
            cache.check(got[0], range(30, 70))
    finally:
        hoarder.kill()
        hoarder.communicate()
    read_in_processes([reader(cache), reader(cache)], 0, 2)


def test_a_killed_reader_is_forgotten(serve, reader, small):
    cache = serve(small, world=2, epochs=3, batch_size=8)
    doomed, other = reader(cache), reader(cache)
    assert doomed.ask("keep", epoch=0, rank=0, count=6) == 6
    assert leased(cache, doomed.pid) > 0
    doomed.kill()
    until(lambda: leased(cache, doomed.pid) == 0, f"the leases of process {doomed.pid}, which was killed")
    other.ask("epoch", epoch=0, rank=1)
    again = reader(cache)
    assert again.ask("epoch", epoch=0, rank=0, start=6) == len(cache.batches(0, 0)) - 6
    read_in_processes([again, other], 1, 3)


def test_the_end_of_a_connection_frees_nothing(serve, reader, small):
    """While a process lives, it may read. With its token it continues its leases, and only then can it end them."""
    cache = serve(small, world=2, epochs=4, batch_size=8, memory="24MiB")
    other = reader(cache)
    with Wire(cache.socket).hello() as wire:
        held = [wire.chunk(0, 0, n) for n in range(3)] + [wire.get([5, 6, 7])]
        assert all(wire.same(samples, small.contents) for _, samples in held)
        wire.socket.shutdown(2)
        wire.socket.close()
        for epoch in range(4):
            other.ask("epoch", epoch=epoch, rank=1)
            assert all(wire.same(samples, small.contents) for _, samples in held)
        assert leased(cache, os.getpid()) > 0
        with Wire(cache.socket).hello(wire.info["token"]) as again:
            assert (again.info["token"], again.info["server"]) == (wire.info["token"], wire.info["server"])
            for lease, _ in held:
                again.release(lease)
            again.chunk(0, 0, 3)[0]
        with Wire(cache.socket).hello("0" * 32) as stranger:
            assert stranger.info["token"] not in ("0" * 32, wire.info["token"])


def test_a_client_that_stands_still_keeps_its_bytes(serve, reader, small):
    """A process that is stopped by a signal for whole epochs keeps its leases: no deadline takes a live process's leases."""
    cache = serve(small, world=2, epochs=3, batch_size=8)
    still, other = reader(cache), reader(cache)
    still.ask("keep", epoch=0, rank=0, count=4)
    os.kill(still.pid, signal.SIGSTOP)
    try:
        for epoch in range(3):
            other.ask("epoch", epoch=epoch, rank=1)
    finally:
        os.kill(still.pid, signal.SIGCONT)
    assert still.ask("check_kept") == 4
    assert leased(cache, still.pid) > 0
