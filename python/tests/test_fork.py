"""A forked child uses neither its parent's connection nor its leases."""

import os
import traceback

import pytest
from conftest import check
from fakeserver import content, order

import lcache
from lcache._client import releases


def in_child(test):
    """Runs test() in a forked child. A failed assertion there fails this test, too."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            test()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            releases.act()  # releases leases now: the fake server does not notice the end of a process
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, "see the child's traceback"


def test_child_has_its_own_session(job):
    batch, iterator = job.get([1, 2]), job.epoch(0)
    check(next(iterator), order(0, 0, 0))

    def child():
        check(job.get([5]), [5])
        for number, mine in enumerate(job.epoch(1)):
            check(mine, order(1, 0, number))
        assert job._link.session.info.pid

    in_child(child)
    assert job.server.accepted == 2
    assert "token" not in job.server.hellos[1], "the child took its parent's session"
    check(batch, [1, 2])
    check(next(iterator), order(0, 0, 1))
    iterator.close()


def test_parents_batches_are_invalid(job):
    batch, iterator = job.get([1, 2]), job.epoch(0)
    next(iterator)
    samples = batch.samples

    def child():
        for use in (lambda: batch.samples[0], lambda: list(batch.samples), lambda: batch.parts[0], lambda: samples[1:], lambda: next(iterator)):
            with pytest.raises(lcache.Error, match="parent"):
                use()
        assert list(batch.indices) == [1, 2]
        assert len(batch.names) == 2

    in_child(child)
    check(batch, [1, 2])
    iterator.close()


def test_child_drops_without_releasing(job):
    held = [job.get([1, 2]), job.epoch(0)]
    next(held[1])
    view = held[0].samples[1]
    assert job.server.wait_for(lambda: job.server.released == 1), "the iterator's first batch"

    def child():
        held.clear()
        job.get([3]).release()
        job.close()

    in_child(child)
    assert bytes(view) == content(2)
    assert job.server.wait_for(lambda: job.server.byes == 1)
    assert job.server.released == 2, "the child released leases of its parent"
    check(job.get([9]), [9])
    held[1].close()


def test_copies_survive_the_fork(serve, path):
    serve(credit_bytes=1)
    job = lcache.connect(path, timeout=10)
    kept = [job.get([1]), job.get([2])]
    in_child(lambda: check(kept[1], [2]))
    job.close()


def test_grandchild(job):
    def child():
        check(job.get([5]), [5])
        in_child(lambda: check(job.get([6]), [6]))
        check(job.get([7]), [7])

    in_child(child)
    assert job.server.accepted == 3
