"""A look at one batch, next(iter(loader)), starts no work at the server, and has no effect on later epochs."""

import logging
import os
import signal

import pytest
from embedded_servers import entry_of, folder, root  # noqa: F401
from test_ownership import fill, in_order, read, status
from waits import until, wait_for_end

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)

from torch.utils import data  # noqa: E402

import lcache.torch as lt  # noqa: E402

SIZE = 16


def index(_, sample):
    return sample.index


def made(ours, kind, workers, seed):
    generator = torch.Generator().manual_seed(seed)
    if kind == "watched":
        return lt.watch(data.DataLoader(ours, SIZE, shuffle=True, generator=generator, num_workers=workers))
    if kind == "batch sampler":
        return data.DataLoader(ours, batch_sampler=lt.BatchSampler(data.RandomSampler(ours, generator=generator), SIZE, False), num_workers=workers)
    return lt.DataLoader(ours, SIZE, shuffle=True, seed=seed, num_workers=workers)


def state(ours):
    """The work that the server has begun, without the reads for the look itself."""
    said = status(ours)
    return {name: said[name] for name in ("log_write_bytes", "evicted_segments", "epoch", "divergences")} | {"ranks": [(r["rank"], r["position"]) for r in said["ranks"]]}


@pytest.fixture
def pushed(monkeypatch):
    """(the epochs whose orders were pushed, the positions of the batches that this process requested)."""
    epochs, places = [], []
    push, get = lt.dataset.Job.push_order, lt.dataset.Job.get
    monkeypatch.setattr(lt.dataset.Job, "push_order", lambda job, epoch, rank, order: (epochs.append(epoch), push(job, epoch, rank, order)))
    monkeypatch.setattr(lt.dataset.Job, "get", lambda job, indices, at=None: (places.append(at), get(job, indices, at=at))[1])
    return epochs, places


LOOKS = [("loader", 0), ("loader", 2), ("watched", 0), ("watched", 2), ("batch sampler", 0)]


@pytest.mark.parametrize("kind, workers", LOOKS)
def test_over_a_full_cache(folder, root, pushed, kind, workers):
    """A new server has a full log, laid out for another loader's order. It starts no work until a loop requests a second batch."""
    ours = lt.Dataset(folder.root, index, cache=root)
    fill(ours, lt.DataLoader(ours, SIZE, shuffle=True, seed=1))
    os.kill(ours.job.pid, signal.SIGTERM)
    wait_for_end(ours.job.pid)
    pushed[0].clear(), pushed[1].clear()
    ours = lt.Dataset(folder.root, index, cache=root)
    before = state(ours), status(ours)["source_reads"]
    assert before[0]["log_write_bytes"] == before[1] == 0
    loader = made(ours, kind, workers, 2)
    for _ in range(3):
        assert len(next(iter(loader))) == SIZE
    assert pushed == ([], [None] * (0 if workers else 3))
    assert (state(ours), status(ours)["source_reads"]) == before
    digests = [read(loader) for _ in range(3)]
    assert in_order(ours)[-3:] == digests
    assert pushed[0] == [3, 4, 5, 6, 7], "three looks are three epochs"
    after = status(ours)
    assert (after["source_reads"], after["divergences"]) == (before[1], 0)


@pytest.fixture
def patient_requests(monkeypatch):
    """The first request makes the server lay out the log, and what is requested meanwhile comes from the source directly. So each process, forked workers
    included, waits after its first request: how much is read directly then does not depend on the machine's load."""
    first, get = set(), lt.dataset.Job.get

    def get_and_wait(job, indices, at=None):
        batch = get(job, indices, at=at)
        if os.getpid() not in first:
            first.add(os.getpid())
            until(lambda: job.stats()["jobs"][0]["source_reads"] >= job.samples, "the server to read ahead all samples")
        return batch

    monkeypatch.setattr(lt.dataset.Job, "get", get_and_wait)


@pytest.mark.parametrize("kind, workers", LOOKS)
@pytest.mark.parametrize("looks", [0, 2])
def test_over_an_empty_cache(folder, root, patient_requests, looks, kind, workers):
    """An empty cache has nothing to reorder, so even for a look its order is laid out, and all of this small set is read. Each sample is read from the source
    once, except for those that the first requests read before the layout, and for those of the looks. Every epoch that was read has its whole order."""
    ours = lt.Dataset(folder.root, index, cache=root)
    loader = made(ours, kind, workers, 2)
    for _ in range(looks):
        assert len(next(iter(loader))) == SIZE
        until(lambda: status(ours)["bound_by"] == "consumer", "the server to have nothing to do")  # what is under way when an epoch begins is read again
    digests = [read(loader) for _ in range(3)]
    assert in_order(ours)[-3:] == digests
    after = status(ours)
    early, looked = 2 * SIZE * max(1, workers), looks * SIZE * max(1, 2 * workers)  # what workers get at once. As many may be left when the wait ends
    assert len(folder) <= after["source_reads"] <= len(folder) + early + looked
    assert after["divergences"] == 0


def test_a_look_does_not_own_the_order(folder, root, caplog):
    """After looks at a validation loader, the training loader owns the order from its first epoch on."""
    caplog.set_level(logging.INFO, "lcache")
    ours = lt.Dataset(folder.root, index, cache=root)
    check, train = lt.DataLoader(ours, SIZE, num_workers=2), lt.DataLoader(ours, SIZE, shuffle=True, seed=1)
    next(iter(check))
    digests = [read(train)]
    next(iter(check))
    digests.append(read(train))
    said = entry_of(train)
    assert [epoch["order_digest"] for epoch in said["epochs_done"]] == digests and said["divergences"] == 0
    assert "is served by index" not in caplog.text


@pytest.mark.parametrize("samples", [5, 20])
@pytest.mark.parametrize("workers", [0, 2])
def test_short_epochs(folder, root, samples, workers):
    """Epochs of one batch, and of fewer batches than workers draw at once."""
    ours = lt.Dataset(folder.root, index, cache=root)
    part = data.Subset(ours, range(samples))
    loader = lt.DataLoader(part, SIZE, shuffle=True, seed=1, num_workers=workers)
    for _ in range(3):
        assert sorted(i for batch in loader for i in batch.tolist()) == list(range(samples))
    assert None not in in_order(ours) and status(ours)["divergences"] == 0
