"""After an interrupt (a signal's handler that raises) at any point of any call, the job works, and no lease is left."""

import itertools
import signal
import threading

import pytest
from conftest import check
from fakeserver import order
from interrupts import at_point, interrupted_everywhere

import lcache
from lcache._client import releases
from lcache._client.cache_lock import Lock


def no_lease_stays(server):
    releases.act()
    assert server.wait_for(lambda: not server.leases), f"leases never released: {server.leases}"


def an_epoch(job):
    for number, batch in enumerate(job.epoch(0, start=3)):
        check(batch, order(0, 0, 3 + number))


def a_push(job):
    job.push_order(1, 0, [[1, 2, 3], [4, 5]])


ACTS = {"get": lambda job: check(job.get([1, 2, 60]), [1, 2, 60]), "epoch": an_epoch, "push": a_push, "names": lambda job: job.names(range(12))}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_next_read_works(job, act):
    assert interrupted_everywhere(lambda: act(job), lambda: check(job.get([7, 8]), [7, 8])) > 10
    no_lease_stays(job.server)
    act(job)
    assert job.server.accepted == 1, "an interrupt costs no connection"
    assert not job.server.unknown_leases


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_other_threads_read_on(job, act):
    over, failures, rounds = threading.Event(), [], [0, 0]

    def work(which):
        try:
            while not over.is_set():
                check(job.get([100 + which, 200 + rounds[which] % 50]), [100 + which, 200 + rounds[which] % 50])
                rounds[which] += 1
        except BaseException as e:
            failures.append(e)
            raise

    threads = [threading.Thread(target=work, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    try:
        interrupted_everywhere(lambda: act(job), lambda: check(job.get([7, 8]), [7, 8]))
    finally:
        over.set()
        for thread in threads:
            thread.join(20)
    assert not any(thread.is_alive() for thread in threads) and not failures and min(rounds) > 0
    no_lease_stays(job.server)


def test_threads_do_not_wait_for_an_interrupted_one(job):
    """The interrupted thread was receiving for the others, and makes no call afterwards."""

    def received_elsewhere():
        got = []
        thread = threading.Thread(target=lambda: got.append(bytes(job.get([3]).samples[0])))
        thread.start()
        thread.join(10)
        assert len(got) == 1

    interrupted_everywhere(lambda: ACTS["get"](job), received_elsewhere)


def test_connect(serve, path):
    server = serve()

    def after():
        with lcache.connect(path, timeout=10) as job:
            check(job.get([7]), [7])

    def act():
        with lcache.connect(path, timeout=10) as job:
            check(job.get([7]), [7])

    interrupted_everywhere(act, after)
    no_lease_stays(server)


def test_first_use_after_an_interrupted_connect(serve, path):
    """An interrupted call never blocks a job that connects again, even from another thread."""
    server = serve()
    with lcache.connect(path, timeout=10) as job:

        def act():
            server.drop_connections()
            check(job.get([7]), [7])

        def after():
            got = []
            thread = threading.Thread(target=lambda: got.append(bytes(job.get([3]).samples[0])))
            thread.start()
            thread.join(10)
            assert len(got) == 1
            check(job.get([8]), [8])

        interrupted_everywhere(act, after)


def test_handler_that_closes(serve, path):
    """A SIGTERM handler may close the job at any point of a call. The interrupted call may end as if the job had been closed before."""
    server = serve()
    for k in itertools.count():
        job = lcache.connect(path, timeout=10)
        try:
            reached = at_point(k, job.close, lambda: ACTS["get"](job))
        except lcache.Error as e:
            assert "closed" in str(e)
            reached = True
        with pytest.raises(lcache.Error, match="closed"):
            if not reached:
                job.close()
            job.get([1])
        no_lease_stays(server)
        if not reached:
            return


def test_lock_of_a_cache(tmp_path):
    """An interrupt leaves no lock of a cache locked: the process would later wait for itself."""
    path = str(tmp_path / "cache" / "open.lock")

    def act():
        with Lock.take(path, 2.0) as lock:
            lock.write_activity("something")

    assert interrupted_everywhere(act, act) > 10


def test_no_interrupt_is_lost(job):
    """An exception within a finalizer is printed and lost, even an interrupt. So lcache has no finalizers in Python."""
    armed, raised, caught = False, 0, 0

    def handler(*_):
        nonlocal armed, raised
        if armed:
            armed = False
            raised += 1
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.003, 0.003)
    try:
        for _ in range(200):
            try:
                armed = True
                while armed:
                    batch = job.get([1, 2])
                    del batch
                    for batch in job.epoch(0, start=4):
                        del batch
            except KeyboardInterrupt:
                caught += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert (raised, caught) == (200, 200)


def test_one_object_that_fails_keeps_nothing_from_the_others(caplog):
    ended = []

    def fails():
        raise ValueError("broken")

    class Thing:
        pass

    for act in (fails, lambda: ended.append(1)):
        releases.when_gone(Thing(), act)
    releases.act()
    assert ended == [1] and "broken" in caplog.text
