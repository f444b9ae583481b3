"""A job whose order the server draws from the losses that the loop reports."""

import inspect
import logging
import os
import random
import threading
import time
from array import array

import pytest
from realserver import Folder, Server, lcache_command, needs_binary

import lcache
from lcache import observer as observer_module
from lcache._client import protocol

SAMPLES = 300


@pytest.fixture(scope="module")
def folder(source_dir):
    draw = random.Random(3)
    return Folder(source_dir(), [1 + draw.randrange(3000) for _ in range(SAMPLES)])


@pytest.fixture
def server(folder, tmp_path):
    server = Server(folder, tmp_path / "cache", epochs=9)
    server.ingest()
    yield server.start()
    server.stop()


def loss(index, epoch):
    return (index * 37 + epoch * 11) % 101 / 10


def train(job, epoch, batches=None):
    """Reads an epoch, or some batches of it, and observes each batch. Returns the indices in reading order."""
    order = []
    for number, batch in enumerate(job.epoch(epoch)):
        assert list(batch.requested) == list(batch.indices)
        job.observe(batch.indices, [loss(i, epoch) for i in batch.indices])
        order += batch.indices
        if number + 1 == batches:
            break
    return order


def status(job):
    return job.stats()["jobs"][0]["importance"]


def test_signatures():
    """Keyword arguments have the documented names, because programs use them."""
    asked = {"name": "default", "cache": None, "seed": None, "batch_size": None, "world_size": None, "drop_last": None, "substitute": None, "lag": None, "policy": "next-use", "draw": "systematic"}
    needed, some = inspect.Parameter.empty, {"epoch": None, "rank": None}
    for name, positional, keywords in (
        ("importance", {"method": needed}, asked),
        ("observe", {"indices": needed, "losses": needed, "embeddings": None}, some),
        ("end_epoch", {"accuracy": None, "loss": None}, some),
        ("reevaluate", {"rank": None}, {}),
        ("order", {"epoch": needed, "rank": None}, {}),
        ("weights", {"indices": needed}, {}),
    ):
        of = [p for p in list(inspect.signature(getattr(lcache.Job, name)).parameters.values())[1:] if p.kind != p.VAR_KEYWORD]
        assert {p.name: p.default for p in of if p.kind != p.KEYWORD_ONLY} == positional, name
        assert {p.name: p.default for p in of if p.kind == p.KEYWORD_ONLY} == keywords, name


@needs_binary
@pytest.mark.parametrize("method", ["impact", "shade"])
def test_epochs_are_drawn(server, method):
    """Epoch 0 has the recipe's order. The next one is drawn from observed losses, and is that of job.order. Every byte is right."""
    with server.connect() as job:
        job.importance(method, lag=0, **({"s_share": 0} if method == "impact" else {}))
        job.importance(method, lag=0, **({"s_share": 0} if method == "impact" else {}))  # a second call with the same arguments
        assert sorted(train(job, 0)) == list(range(SAMPLES))
        job.end_epoch(accuracy=0.5, loss=1.0)
        order = list(job.order(1))
        assert train(job, 1) == order != sorted(order)
        assert len(set(order)) < SAMPLES
        weights = job.weights(order[:50])
        assert isinstance(weights, array) and sum(weights) == pytest.approx(50, rel=1e-3)
        for batch in job.epoch(2):
            server.check(batch, list(batch.indices))
        s = status(job)
        assert (s["method"], s["state"], s["observations_dropped"], s["epoch"]) == (method, "active", 0, 2)
        assert s["observations"] == SAMPLES + len(order)
        assert list(job.reevaluate()) == []


@needs_binary
def test_different_options_are_refused(server):
    with server.connect() as job:
        with pytest.raises(lcache.Error, match=r"job\.importance first"):
            job.order(0)
        job.observe([1], [2.0])  # without a method it does nothing
        with pytest.raises(lcache.ArgumentError, match="did you mean shade"):
            job.importance("shad")
        with pytest.raises(lcache.ArgumentError, match="leave substitute out"):
            job.importance("impact", substitute="class")
        job.importance("shade", seed=2**64 - 1)
        with pytest.raises(lcache.ArgumentError, match="b0 10 and 11"):
            job.importance("shade", seed=2**64 - 1, b0=11)
        with pytest.raises(lcache.ArgumentError, match="draws the order"):
            job.push_order(0, 0, [[1]])


TORCHRUN = {"WORLD_SIZE": "16", "RANK": "3", "LOCAL_RANK": "3"}
SLURM = {"SLURM_NTASKS": "16", "SLURM_PROCID": "15", "SLURM_LOCALID": "0", "SLURM_NODEID": "3"}


@needs_binary
def test_a_parameter_without_effect_is_warned_of_once(server, caplog):
    job = server.connect()
    for _ in range(2):
        job.importance("impact", l_share=0.2)
    assert [r.message for r in caplog.records if "no effect" in r.message] == ["importance: l_share of impact has no effect"]
    with pytest.raises(lcache.ArgumentError, match="l_share of impact"):
        job.importance("impact", l_share=2)
    job.close()


@needs_binary
@pytest.mark.parametrize(
    "env, here",
    [
        ({**TORCHRUN, "LOCAL_WORLD_SIZE": "8"}, 8),
        ({**SLURM, "SLURM_TASKS_PER_NODE": "5(x3),1"}, 1),
        ({**TORCHRUN, "LOCAL_WORLD_SIZE": "16"}, None),  # one machine
        ({**SLURM, "SLURM_PROCID": "3", "SLURM_LOCALID": "3", "SLURM_TASKS_PER_NODE": "16"}, None),
        (TORCHRUN, None),  # the launcher doesn't say
        ({**TORCHRUN, "LOCAL_WORLD_SIZE": "eight"}, None),
        ({"LOCAL_WORLD_SIZE": "8"}, None),
        ({}, None),  # a notebook
        ({"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}, None),  # the launched process of a machine starts the others itself
    ],
)
def test_all_ranks_on_one_machine(folder, tmp_path, monkeypatch, env, here):
    """A training on several machines is refused at once. If the launcher doesn't say, it is not refused."""
    for name in [name for name in os.environ if name.startswith("SLURM_")] + ["WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"]:
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    server = Server(folder, tmp_path / "cache", world=16)
    server.ingest()
    try:
        with server.start().connect() as job:
            if here is None:
                job.importance("shade")
                assert status(job)["method"] == "shade"
            else:
                with pytest.raises(lcache.ArgumentError, match=rf"job\.importance needs all ranks on one machine: 16 in all, {here} here \[LC007\]$"):
                    job.importance("shade")
                assert status(job) is None
                assert sum(len(batch) for batch in job.epoch(0)) > 0  # the recipe's order continues
    finally:
        server.stop()


@needs_binary
@pytest.mark.parametrize("batches", [None, 7, 1])
@pytest.mark.parametrize("method, lag", [("shade", 0), ("shade", 1), ("shade", "split"), ("impact", "split")])
def test_killed_server(server, batches, method, lag):
    """A server that was killed at the end or in the middle of an epoch restarts with the same order. The program need not do anything."""
    params = {"warmup": 2, "cache": "300kB"} if method == "impact" else {}  # a part of it is for unstable samples
    with server.connect() as job:
        job.importance(method, lag=lag, **params)
        for epoch in range(4):
            train(job, epoch)
        want = list(job.order(4))
        assert sorted(want) != list(range(SAMPLES)), "a plain epoch"
        if batches is not None:
            assert train(job, 4, batches) == want[: 16 * batches]
        unstable = [i for batch in job.reevaluate() for i in batch.indices]
        assert (len(unstable) > 0) == (method == "impact")
        server.kill()
        server.start()
        assert list(job.order(4)) == want
        assert [i for batch in job.reevaluate() for i in batch.indices] == unstable
        assert train(job, 4) == want
        assert train(job, 5) != want


@needs_binary
@pytest.mark.parametrize("end", [Server.stop, Server.kill])
def test_removed(server, end):
    """`lcache rm` removes all files of a cache with layouts of drawn epochs, even if a save was interrupted."""
    name = "a.B-3_" * 10 + "8888"
    with server.connect() as job:
        job.importance("shade", name=name, lag=1)
        for epoch in range(4):
            train(job, epoch)
        job.order(4)
    end(server)
    assert f"importance-{name}" in os.listdir(server.cache)
    for more in (f"importance-{name}.new", "line-0", "line-1", "line-1.new"):  # files that do not exist at this moment
        with open(os.path.join(server.cache, more), "a"):
            pass
    lcache_command("rm", server.cache)
    assert set(os.listdir(server.cache)) == {"lcache", "LOCK"}  # the tests' own folder of sockets, and the lock


@needs_binary
def test_bad_observations(server, caplog):
    """No observation raises. The server counts the refused ones."""
    with server.connect() as job:
        job.importance("shade", lag=0)
        nan, inf = float("nan"), float("inf")
        job.observe([0, 1, 2], [nan, 1.0, -inf])
        job.observe([-1, SAMPLES, 2**40, 3], [1.0, 1.0, 1.0, 1.0])
        job.observe([1, 2], [1.0])
        job.observe([], [])
        job.observe([1], [1.0], epoch=7)
        with caplog.at_level(logging.WARNING, logger="lcache"):
            for nonsense in ("text", 5, None, object(), [object()]):
                job.observe([1], nonsense)
                job.observe(nonsense, [1.0])
            job.observe([1], [1.0], embeddings=[[1.0]])
        assert len(caplog.records) == 1
        job.end_epoch()
        job.order(1)  # is drawn from all earlier observations
        s = status(job)
        assert s["refused"] == {"unknown": 3, "notfinite": 2, "stale": 1, "shape": 2, "dimension": 0}
        assert s["observations"] == 2


@needs_binary
def test_irreducible(server, tmp_path):
    """With irreducible losses, the orders equal the orders of a job that observes the differences."""
    draw = random.Random(4)
    own = array("f", (draw.uniform(0, 12) for _ in range(SAMPLES)))
    (tmp_path / "own").write_bytes(own.tobytes())
    orders = {}
    with server.connect() as plain:
        for name, path in (("file", tmp_path / "own"), ("difference", None), ("nothing", None)):
            job = plain.named(name)
            job.importance("impact", name=name, lag=0, s_share=0, irreducible=path)
            for batch in job.epoch(0):
                losses = [loss(i, 0) for i in batch.indices]
                if name == "difference":
                    losses = [max(0, x - own[i]) for i, x in zip(batch.indices, losses)]
                job.observe(batch.indices, losses)
            job.observe([SAMPLES], [1.0])
            job.end_epoch()
            orders[name] = list(job.order(1))
            (entry,) = [entry for entry in job.stats()["jobs"] if entry["id"] == name]
            assert (entry["importance"]["observations"], entry["importance"]["refused"]["unknown"]) == (SAMPLES, 1)
        assert orders["file"] == orders["difference"] != orders["nothing"]
        for data, why in ((own[1:].tobytes(), "1196 bytes"), (own.tobytes() + b"x", "more bytes"), (array("f", [float("nan")] * SAMPLES).tobytes(), "not finite")):
            (tmp_path / "own").write_bytes(data)
            with pytest.raises(lcache.ArgumentError, match=why):
                plain.named("other").importance("impact", irreducible=tmp_path / "own")
        with pytest.raises(lcache.ArgumentError, match="No such file"):
            plain.named("other").importance("impact", irreducible=tmp_path / "none")
        with pytest.raises(lcache.ArgumentError, match="irreducible"):
            plain.named("other").importance("shade", irreducible=str(tmp_path / "own"))


def test_queue_is_bounded(serve, path):
    """Observations that the socket does not take are queued. A full queue drops the oldest. The loop never waits."""
    serve()
    with lcache.connect(path, timeout=10) as job:
        job._observer = observer = observer_module.Observer(job._link, "shade", {})
        session = job._link.session
        session.send_now = lambda *_: False
        for number in range(observer_module.QUEUE + 9):
            job.observe([number], [1.0])
        assert (len(observer._queue), observer.dropped) == (observer_module.QUEUE, 9)
        assert observer._queue[0][1] == protocol.observe(protocol.LOSSES, 0, 0, 9, array("I", [9]).tobytes(), array("f", [1.0]).tobytes())


@needs_binary
def test_gathered(server):
    """Several observations are sent together. A request that depends on them sends the queue first. The memory policy of a paper gets each of them."""
    with server.connect() as plain:
        for policy, sent_at_once in (("next-use", 0), ("paper", 3)):
            with plain.named(policy) as job:
                job.importance("shade", name=policy, lag=0, cache=0, policy=policy)
                job.observer.flush()
                for number in range(3):
                    job.observe([number], [1.0])
                assert len(job.observer._queue) == 3 - sent_at_once
                job.weights([1])
                assert not job.observer._queue
                for number in range(observer_module.GATHER):
                    job.observe([number], [1.0])
                assert not job.observer._queue
                job.observe([1], [1.0])
                job.end_epoch()
                job.order(1)
                (entry,) = [entry for entry in job.stats()["jobs"] if entry["id"] == policy]
                assert entry["importance"]["observations"] == 3 + observer_module.GATHER + 1


@needs_binary
def test_dropped_observations_are_reported(server):
    """The status counts the observations that the client dropped, once."""
    with server.connect() as job:
        job.importance("shade", lag=0)
        session = job._link.session
        send_now, session.send_now = session.send_now, lambda *_: False
        for number in range(observer_module.QUEUE + 6):
            job.observe([number], [1.0])
        session.send_now = send_now
        job.end_epoch()  # drops an observation to make room
        job.order(1)
        assert (status(job)["observations"], status(job)["observations_dropped"]) == (observer_module.QUEUE - 1, 7)
        job.end_epoch()
        job.order(2)
        assert status(job)["observations_dropped"] == 7


def test_old_server(serve, path):
    serve()
    with lcache.connect(path, timeout=10) as job, pytest.raises(lcache.Error, match="older"):
        job.importance("shade")


@pytest.mark.parametrize("body", [b"", b"\0" * 7, b"\2\0\0\0\3\0\0\0" + b"\0" * 12, b"\2\0\0\0\1\0\0\0\xff\0\0\0", b"\2\0\0\0\0\0\0\0", b"\2\0\0\0\2\0\0\0" + b"\0" * 4])
def test_wrong_pages(body):
    with pytest.raises(lcache.ProtocolError):
        protocol.read_indices(body, 0, 9, 100)
    with pytest.raises(lcache.ProtocolError):
        protocol.read_weights(body, 4)


@needs_binary
def test_a_training_step(server):
    """A small model learns from a drawn order with weights. Its losses come from torch, one for each sample."""
    torch = pytest.importorskip("torch")
    from lcache.torch import losses, weights

    with server.connect() as job:
        job.importance("shade", lag=0)
        model = torch.nn.Linear(8, 7)
        with torch.no_grad():
            model.weight.zero_()
            model.bias.zero_()
        step = torch.optim.SGD(model.parameters(), 0.1)
        for epoch in range(2):
            for batch in job.epoch(epoch):
                x = torch.tensor([[len(view) % 8 == k for k in range(8)] for view in batch.samples], dtype=torch.float32)
                each = losses(model(x), batch.labels)
                assert each.shape == (len(batch),)
                step.zero_grad()
                (each * weights(job, batch.indices)).mean().backward()
                step.step()
                job.observe(batch.indices, each)
        assert status(job)["refused"] == {"unknown": 0, "notfinite": 0, "stale": 0, "shape": 0, "dimension": 0}
        job.end_epoch(accuracy=0.5)
        job.order(2)
        assert status(job)["observations"] == 2 * SAMPLES


def test_observe_does_not_wait_for_a_flush(serve, path):
    """While a thread waits for the socket to take the queue, other threads can still observe. Observations are sent in order."""
    serve()
    with lcache.connect(path, timeout=10) as job:
        job._observer = observer = observer_module.Observer(job._link, "shade", {})
        session, sent, begun, release = job._link.session, [], threading.Event(), threading.Event()

        def send_now(frames, must):
            begun.set()
            assert not must or release.wait(20)
            sent.extend(frames)
            return True

        session.send_now = send_now
        observer._queue.append((protocol.OBSERVE, b"first"))
        flush = threading.Thread(target=observer.flush, args=(time.monotonic() + 20,))
        flush.start()
        try:
            assert begun.wait(20)
            observing = threading.Thread(target=job.observe, args=([1], [1.0]), daemon=True)
            observer.gathers = False
            observing.start()
            observing.join(5)
            assert not observing.is_alive()
        finally:
            release.set()
            flush.join(20)
        assert [body for _, body in sent] == [b"first", protocol.observe(protocol.LOSSES, 0, 0, 0, array("I", [1]).tobytes(), array("f", [1.0]).tobytes())]
