"""Samplers that run in advance in a forked child: its predictions, and its failures: wrong orders, samplers that can't run there, and a child that does not end."""

import logging
import multiprocessing
import os
import signal
import socket

import pytest
from embedded_servers import entry_of, folder, patient, pushed, root  # noqa: F401

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)

from test_effects import EPOCHS, SIZE, CountsOnTheClass, N, Sized, index, turned  # noqa: E402
from torch.utils import data  # noqa: E402

import lcache  # noqa: E402
import lcache.torch as lt  # noqa: E402


def forks(monkeypatch):
    """The forks of this process, from now on."""
    seen, fork = [], os.fork
    monkeypatch.setattr(os, "fork", lambda: (seen.append(1), fork())[1])
    return seen


class ByProcess(Sized):
    """Has a different order in another process."""

    def __init__(self, tmp_path):
        self.pid = os.getpid()

    def __iter__(self):
        yield from turned(int(os.getpid() != self.pid))


def test_wrong_predictions_end(folder, root, tmp_path, caplog, monkeypatch, patient):
    caplog.set_level(logging.INFO, "lcache")
    seen = forks(monkeypatch)
    loader = lt.DataLoader(lt.Dataset(folder.root, index, cache=root), SIZE, sampler=ByProcess(tmp_path))
    for epoch in range(4):
        assert [i for batch in loader for i in batch.tolist()] == list(range(N))
        assert loader.batch_sampler.order_ahead.exact is (False if epoch < 2 else None)
    assert len(seen) == 2, "children after two wrong epochs"
    (warning,) = [r.message for r in caplog.records if r.levelname == "WARNING"]
    assert all(words in warning for words in ("ByProcess", "another order", "at random", "set_epoch"))


class Changed(Sized):
    """The training loop sets its order between epochs."""

    def __init__(self, tmp_path):
        self.by = 0

    def __iter__(self):
        return iter(turned(self.by))


def test_orders_that_change_between_epochs(folder, root, tmp_path, caplog, patient):
    """The current epoch is still predicted."""
    sampler = Changed(tmp_path)
    loader = lt.DataLoader(lt.Dataset(folder.root, index, cache=root), SIZE, sampler=sampler)
    for sampler.by in range(5):
        assert [i for batch in loader for i in batch.tolist()] == turned(sampler.by)
        assert loader.batch_sampler.order_ahead.exact
    (warning,) = [r.message for r in caplog.records if r.levelname == "WARNING"]
    assert "Changed" in warning and "only the current epoch is predicted" in warning


def reaching(what):
    """Samplers that refer to `what` but do not use it for their order."""

    class Reaches(Sized):
        def __init__(self):
            self.held = {"deep": [what]}

        def __iter__(self):
            yield from range(N)

    class Closes(Sized):
        def __init__(self):
            pass

        def __iter__(self):
            yield from (what and None) or range(N)

    return Reaches(), Closes()


@pytest.mark.parametrize("name", ["socket", "pipe", "file", "queue", "lock", "connection"])
def test_no_child_for_samplers_that_reach_outside(folder, root, tmp_path, caplog, monkeypatch, name):
    what = {
        "socket": socket.socket,
        "pipe": lambda: os.fdopen(os.pipe()[0]),
        "file": lambda: open(tmp_path / "file", "a"),
        "queue": multiprocessing.Queue,
        "lock": multiprocessing.Lock,
        "connection": lambda: multiprocessing.Pipe()[0],
    }[name]()
    for sampler in reaching(what):
        caplog.clear()
        loader = lt.DataLoader(lt.Dataset(folder.root, index, cache=root), SIZE, sampler=sampler)
        seen = forks(monkeypatch)
        for _ in range(2):
            assert [i for batch in loader for i in batch.tolist()] == list(range(N))
        assert not seen and caplog.text.count("which no second process may use") == 1 and type(sampler).__name__ in caplog.text


class Stuck(Sized):
    """Never ends in another process."""

    def __init__(self, tmp_path):
        self.pid = os.getpid()

    def __iter__(self):
        while os.getpid() != self.pid:
            signal.pause()
        yield from range(N)


def test_child_that_does_not_end(folder, root, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("lcache.torch._order.forked_child.SECONDS", 0.5)
    monkeypatch.setattr("lcache.torch._order.foreseen_orders.PATIENCE", 60.0)
    before = children()
    loader = lt.DataLoader(lt.Dataset(folder.root, index, cache=root), SIZE, sampler=Stuck(tmp_path))
    for _ in range(3):
        assert [i for batch in loader for i in batch.tolist()] == list(range(N))
    (warning,) = [r.message for r in caplog.records if r.levelname == "WARNING"]
    assert "Stuck" in warning and "lcache_pure" in warning
    assert children() <= before, "a child was left"


def children():
    """The pids of this process's children that run Python, including multiprocessing's own, but not lcache's server."""

    def name(pid):
        with open(f"/proc/{pid}/comm") as f:
            return f.read()

    with open(f"/proc/self/task/{os.getpid()}/children") as f:
        return {pid for pid in f.read().split() if name(pid) == name("self")}


class Pure(Sized):
    lcache_pure = True

    def __iter__(self):
        yield from turned(3)


def test_pure_samplers_need_no_child(folder, root, tmp_path, monkeypatch, pushed):
    loader = lt.DataLoader(lt.Dataset(folder.root, index, cache=root), SIZE, sampler=Pure(tmp_path))
    seen = forks(monkeypatch)
    for _ in range(2):
        assert [i for batch in loader for i in batch.tolist()] == turned(3)
        assert loader.batch_sampler.order_ahead.exact
    assert not seen and pushed[:3] == [(0, 0), (1, 0), (2, 0)]


def test_predictions_of_a_child_are_pushed(folder, root, tmp_path, pushed, patient):
    """Later epochs of a counter on the class are predicted, because the child's copy counts further."""
    sampler, before = CountsOnTheClass(tmp_path), children()
    loader = lt.DataLoader(lt.Dataset(folder.root, index, cache=root), SIZE, sampler=sampler)
    for epoch in range(EPOCHS):
        assert [i for batch in loader for i in batch.tolist()] == turned(epoch + 1)
        assert loader.batch_sampler.order_ahead.exact and CountsOnTheClass.epochs == epoch + 1
    assert pushed == [(epoch, 0) for epoch in range(EPOCHS + 2)]
    assert loader.dataset.job.stats()["jobs"][0]["divergences"] == 0
    assert children() <= before


class Own(data.Sampler):
    """Draws from its own generator, and has no effect outside."""

    def __init__(self, n=N, seed=3):
        self.n, self.generator = n, torch.Generator().manual_seed(seed)

    def __iter__(self):
        yield from torch.randperm(self.n, generator=self.generator).tolist()

    def __len__(self):
        return self.n


@pytest.mark.parametrize("workers", [0, 2])
def test_log_is_laid_out(folder, root, patient, workers):
    """A sampler that was not declared pure is served from the log in its order, like torch's own samplers."""
    loader = lt.DataLoader(lt.Dataset(folder.root, index, cache=root), SIZE, sampler=Own(len(folder)), num_workers=workers)
    reference = data.DataLoader(range(len(folder)), SIZE, sampler=Own(len(folder)))
    for epoch in range(20):
        assert [batch.tolist() for batch in loader] == [batch.tolist() for batch in reference]
        status = entry_of(loader)
        assert status["divergences"] == 0
        if epoch >= 2 and not any(e["misses"] for e in status["epochs_done"] if e["epoch"] == epoch):
            break
    else:
        pytest.fail("every epoch has misses")
    assert None not in [e["order_digest"] for e in status["epochs_done"]], "a batch came without its place"


def test_resume_of_a_sampler_that_a_child_runs(folder, root):
    """The generator's state is restored, and the order is compared with the saved one."""

    def build(seed=3):
        return lt.DataLoader(lt.Dataset(folder.root, index, cache=root), SIZE, sampler=Own(seed=seed))

    reference = data.DataLoader(range(N), SIZE, sampler=Own())
    want = [[batch.tolist() for batch in reference] for _ in range(3)]
    loader = build()
    assert [batch.tolist() for batch in loader] == want[0]
    iterator = iter(loader)
    assert [next(iterator).tolist() for _ in range(2)] == want[1][:2]
    state = loader.state_dict()
    assert (state["epoch"], state["consumed"]) == (1, 2) and state["order_digest"]
    again = build()
    again.load_state_dict(state)
    assert [batch.tolist() for batch in again] == want[1][2:]
    assert [batch.tolist() for batch in again] == want[2]
    other = build(4)
    with pytest.raises(lcache.Error, match="seed 3, and this loader has seed 4"):
        other.load_state_dict(state)
