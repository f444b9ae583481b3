"""Servers that end, restart, are slow, or answer with errors."""

import os
import pickle
import threading
import time

import pytest
from conftest import check
from fakeserver import BATCHES, Server, error, order

import lcache
from lcache._client import protocol
from lcache._client.embedded import Home


def test_connection_lost_everywhere(serve, path):
    """The connection breaks before each batch in turn; the same server keeps the leases."""
    server = serve()
    for lost in range(BATCHES):
        with lcache.connect(path, timeout=10) as job:
            held = job.get([1, 2, 3])
            for number, batch in enumerate(job.epoch(0)):
                check(batch, order(0, 0, number))
                if number == lost:
                    server.drop_connections()
            if lost < BATCHES - 1:  # at the last batch all answers have already arrived
                assert server.hellos[-1].get("token") == "t1"
            check(held, [1, 2, 3])
            del held, batch
        assert lost == BATCHES - 1 or server.wait_for(lambda: server.byes == lost + 1)


def test_release_over_the_next_connection(serve, path):
    server = serve()
    job = lcache.connect(path, timeout=10)
    held = job.get([1])
    server.drop_connections()
    held.release()
    check(job.get([2]), [2])
    assert server.wait_for(lambda: server.released >= 1)
    job.close()


class Dies(Server):
    """Ends at the CHUNK of batch `at`."""

    at = 3

    def answer(self, kind, body, mine):
        if kind == protocol.CHUNK and body[8] == self.at:
            self.at = -1
            self.drop_connections()
            return None
        return super().answer(kind, body, mine)


def test_server_restarts(serve, path):
    """Another server starts at the same path. The order and held bytes stay, and pushed orders are pushed again."""
    first = serve(Dies)
    job = lcache.connect(path, timeout=10)
    job.push_order(0, 0, [1, 2, 3])
    job.push_order(7, 1, [[4], [5, 6]])
    job.push_order(8, 0, [4, 5])
    held = job.get([1, 2, 3])
    second = None
    for number, batch in enumerate(job.epoch(7)):
        check(batch, order(7, 0, number))
        if number == 1:
            first.stop_accepting()
            second = serve()
    assert number == BATCHES - 1
    assert first.accepted == 1
    assert set(second.pushed) == {(7, 1), (8, 0)}, "epoch 0 is done"
    assert second.pushed[7, 1] == ([1, 2], [4, 5, 6])
    check(held, [1, 2, 3])
    del held, batch
    job.get([1]).release()
    assert second.wait_for(lambda: not second.leases)
    assert second.unknown_leases == [], "leases of the old server were released at the new one"
    job.close()


def test_server_restarts_before_a_batch_that_was_asked_for_early(serve, path):
    """Another request finds the new server first. The batch is then requested again."""

    class Silent(Server):
        def answer(self, kind, body, mine):
            return None if kind == protocol.CHUNK and body[8] == 3 else super().answer(kind, body, mine)

    first = serve(Silent)
    job = lcache.connect(path, timeout=10)
    batches = job.epoch(0)
    for number in range(3):
        check(next(batches), order(0, 0, number))
    assert first.wait_for(lambda: any(kind == protocol.CHUNK and body[8] == 3 for kind, body in first.requests))
    first.stop_accepting()
    serve()
    first.drop_connections()
    check(job.get([4]), [4])
    for number, batch in enumerate(batches, 3):
        check(batch, order(0, 0, number))
    assert number == BATCHES - 1
    del batch
    job.close()


def test_server_comes_back_late(serve, path):
    first = serve()
    job = lcache.connect(path, timeout=20)
    first.stop_accepting()
    first.drop_connections()
    started = threading.Timer(0.3, serve)
    started.start()
    check(job.get([4]), [4])
    started.join()
    job.close()


def test_server_never_comes_back(serve, path):
    server = serve()
    job = lcache.connect(path, timeout=0.3)
    held = job.get([1])
    server.stop_accepting()
    server.drop_connections()
    with pytest.raises(lcache.ConnectionError, match=r"waited 0.3 s for epoch 3 rank 1 batch 17.*s\.sock"):
        next(job.epoch(3, 1, 17))
    check(held, [1])
    job.close()


def test_server_that_always_breaks_off(serve, path):
    class Rude(Server):
        def answer(self, kind, body, mine):
            raise OSError("enough")

        def _serve(self, s):
            super()._serve(s)
            s.close()

    server = serve(Rude)
    job = lcache.connect(path, timeout=0.5)
    with pytest.raises(lcache.ConnectionError, match=r"waited 0.5 s for 1 samples by index"):
        job.get([1])
    assert server.accepted < 30, "no pause between attempts"
    job.close()


def test_other_dataset(serve, path):
    first = serve()
    job = lcache.connect(path, timeout=10)
    first.stop_accepting()
    first.drop_connections()
    serve(fingerprint="beef")
    with pytest.raises(lcache.Error, match=r"fingerprint beef.*f00d"):
        job.get([1])
    job.close()


def test_deadline_error_names_the_wait(serve, path):
    class Slow(Server):
        go = threading.Event()

        def answer(self, kind, body, mine):
            if kind == protocol.CHUNK:
                self.go.wait(20)
            return super().answer(kind, body, mine)

    server = serve(Slow)
    job = lcache.connect(path, timeout=0.2)
    with pytest.raises(lcache.TimeoutError, match=rf"waited 0\.2 s for epoch 3 rank 1 batch 17 from server pid {job.pid} at {path}") as e:
        next(job.epoch(3, 1, 17))
    assert isinstance(e.value, TimeoutError)
    server.go.set()
    job._link.timeout = 10
    assert job.stats()
    assert server.wait_for(lambda: not server.leases), "the late answer's lease"
    job.close()


def test_late_answers_are_given_back_while_a_traceback_lives(serve, path):
    class Slow(Server):
        go = threading.Event()

        def answer(self, kind, body, mine):
            if kind == protocol.GET:
                self.go.wait(20)
            return super().answer(kind, body, mine)

    server = serve(Slow)
    job, kept = lcache.connect(path, timeout=0.2), []
    for _ in range(3):
        with pytest.raises(lcache.TimeoutError) as e:
            job.get([1, 2])
        kept.append(e.value)
    server.go.set()
    job._link.timeout = 10
    assert job.stats()
    assert server.wait_for(lambda: not server.leases), "the late answers' leases"
    assert len(kept) == 3
    job.close()


def test_close_while_another_thread_waits(serve, path):
    class Silent(Server):
        def answer(self, kind, body, mine):
            return None

    server = serve(Silent)
    job = lcache.connect(path, timeout=30)
    got = []

    def wait():
        try:
            job.stats()
        except Exception as e:
            got.append(e)

    t = threading.Thread(target=wait)
    t.start()
    assert server.wait_for(lambda: server.requests[-1][0] == protocol.STATUS)
    job.close()
    t.join(10)
    assert isinstance(got[0], lcache.Error)
    assert server.wait_for(lambda: server.byes == 1)


@pytest.mark.parametrize("embedded", [True, False])
def test_flags_of_a_server(serve, path, embedded):
    """Errors of a server that lcache.open started show its flags as arguments. Errors of a server that was started by hand show flags, in the text and in the cause."""
    class Refuses(Server):
        def answer(self, kind, body, mine):
            if kind == protocol.GET:
                return error("sample", "read a.jpg: denied: give --s3-profile NAME", sample="a.jpg")
            if kind == protocol.CHUNK:
                return error("argument", "give the server more --memory")
            return super().answer(kind, body, mine)

    serve(Refuses)
    home = Home("/data", (os.path.dirname(path),), (), (), 10) if embedded else None
    with lcache.job.Job(path, 10, home) as job:
        with pytest.raises(lcache.SampleError) as raised:
            job.get([1])
        advice = 's3={"profile": NAME}' if embedded else "--s3-profile NAME"
        assert raised.value.cause == f"read a.jpg: denied: give {advice}" and str(raised.value).endswith(f"{raised.value.cause} [LC059]")
        with pytest.raises(lcache.Error, match="give the server more memory= \\[LC051\\]$" if embedded else "give the server more --memory \\[LC051\\]$"):
            next(job.epoch(0))


@pytest.mark.parametrize(
    ("said", "cls", "stays"),
    [
        ({"kind": "sample"}, lcache.SampleError, True),
        ({"kind": "sample", "reason": "not_found"}, FileNotFoundError, True),
        ({"kind": "sample", "reason": "permission"}, PermissionError, True),
        ({"kind": "timeout"}, lcache.TimeoutError, True),
        ({"kind": "argument"}, lcache.ArgumentError, True),
        ({"kind": "internal"}, lcache.Error, True),
        ({"kind": "of the future"}, lcache.Error, True),
        ({"kind": "protocol"}, lcache.ProtocolError, False),
        ({"kind": "denied"}, lcache.ConnectionError, False),
        # A known code decides.
        ({"kind": "sample", "code": "LC001"}, lcache.SampleError, True),
        ({"kind": "sample", "code": "LC002"}, FileNotFoundError, True),
        ({"kind": "sample", "code": "LC003"}, PermissionError, True),
        ({"kind": "of the future", "code": "LC004"}, lcache.TimeoutError, True),
        ({"kind": "of the future", "code": "LC007"}, lcache.ArgumentError, True),
        ({"kind": "argument", "code": "LC008"}, lcache.ArgumentError, True),
        ({"kind": "internal", "code": "LC010"}, lcache.Error, True),
        ({"kind": "of the future", "code": "LC011"}, lcache.ProtocolError, False),
        ({"kind": "denied", "code": "LC012"}, lcache.ConnectionError, False),
        # For an unknown code of a later server, the kind decides.
        ({"kind": "argument", "code": "LC999"}, lcache.ArgumentError, True),
        ({"kind": "sample", "reason": "not_found", "code": "LC999"}, FileNotFoundError, True),
        ({"kind": "denied", "code": "LC999"}, lcache.ConnectionError, False),
        ({"kind": "of the future", "code": "LC999"}, lcache.Error, True),
    ],
    ids=lambda value: " ".join(value.values()) if isinstance(value, dict) else None,
)
def test_errors(serve, path, said, cls, stays):
    class Refuses(Server):
        def answer(self, k, body, mine):
            if k == protocol.STATUS:
                return error(message="read a/b.jpg: vanished", sample="a/b.jpg", **said)
            return super().answer(k, body, mine)

    server = serve(Refuses)
    job = lcache.connect(path, timeout=10)
    with pytest.raises(cls, match="the status: read a/b.jpg: vanished") as e:
        job.stats()
    assert isinstance(e.value, lcache.Error) and e.value.code == said.get("code", type(e.value).code)
    assert (type(e.value) is lcache.Error) == (cls is lcache.Error)
    assert pickle.loads(pickle.dumps(e.value)).code == e.value.code
    if isinstance(e.value, lcache.SampleError):
        assert (e.value.sample, e.value.cause) == ("a/b.jpg", "read a/b.jpg: vanished")
    check(job.get([2]), [2])
    assert server.accepted == (1 if stays else 2)
    job.close()


@pytest.mark.parametrize("said", [{"kind": "closing"}, {"kind": "closing", "code": "LC013"}, {"kind": "closing", "code": "LC999"}])
def test_closing_server_is_waited_for(serve, path, said):
    class Closing(Server):
        said_so = False

        def answer(self, kind, body, mine):
            if not self.said_so:
                self.said_so = True
                return error(message="the server stops", **said)
            return super().answer(kind, body, mine)

    server = serve(Closing)
    job = lcache.connect(path, timeout=10)
    check(job.get([2]), [2])
    assert server.accepted == 2
    job.close()


def test_sample_error_pickles():
    e = pickle.loads(pickle.dumps(lcache.SampleError("m", "s", "c")))
    assert (str(e), e.sample, e.cause) == ("m [LC059]", "s", "c")


def test_full_socket_does_not_lose_a_release(serve, path):
    """While the server does not read, finalizers must not block. The next request sends their releases."""
    gate = threading.Event()

    class Stuck(Server):
        def answer(self, kind, body, mine):
            if kind == protocol.STATUS:
                gate.wait(20)
            return super().answer(kind, body, mine)

    server = serve(Stuck, slots=3000, credit_bytes=1 << 30)
    job = lcache.connect(path, timeout=20)
    held = [job.get([i % 49 + 1]) for i in range(2500)]
    waiter = threading.Thread(target=job.stats)
    waiter.start()
    assert server.wait_for(lambda: server.requests[-1][0] == protocol.STATUS)
    began = time.monotonic()
    while held:
        held.pop()
    assert time.monotonic() - began < 10, "a finalizer waited for the socket"
    gate.set()
    waiter.join(20)
    job.stats()
    assert server.wait_for(lambda: not server.leases)
    job.close()
