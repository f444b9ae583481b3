"""Several loaders of one process share a job that the program named: one of them owns the order, and it is one that is in use."""

import gc
import logging
import os
import signal
import weakref

import pytest
from embedded_servers import folder, root  # noqa: F401
from waits import wait_for_end

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)

from torch.utils import data  # noqa: E402

import lcache.torch as lt  # noqa: E402
from lcache.torch._order.ranks import digest  # noqa: E402

SIZE = 16


def index(_, sample):
    return sample.index


def opened(folder, root):
    """A dataset whose loaders share one job."""
    return lt.Dataset(folder.root, index, cache=root, job="shared")


def status(dataset):
    """The status entry of the dataset's job. If its loaders have their own jobs, it is that of the job that owns the log's order."""
    first, *_ = entries = dataset.job.stats()["jobs"]
    if dataset.job.token is None:
        return first
    return {**next(entry for entry in entries if entry["id"] == dataset.job.token), "source_reads": first["source_reads"]}


def read(loader):
    """Reads an epoch, which must be complete and in the sampler's order. Returns its digest."""
    ahead = loader.batch_sampler.order_ahead
    order = [i for batch in loader for i in batch.tolist()]
    assert ahead.exact and len(order) == len(loader.dataset)
    return ahead.digest(ahead.epoch)


def in_order(dataset, least=0):
    """The digests of the epochs that were read with positions, and with at least that number of samples."""
    return [epoch["order_digest"] for epoch in status(dataset)["epochs_done"] if epoch["hits"] + epoch["misses"] >= least]


def whole_in_order(dataset):
    """The digests of the complete epochs.

    The entry of an epoch that the loop left appears when the server notices that, which may be after the end of the next epoch.
    """
    return in_order(dataset, len(dataset) // 2)


def fill(dataset, loader):
    """Reads epochs until one comes from the log alone, and returns their number. The log is laid out more slowly than epochs of milliseconds."""
    for epoch in range(1, 21):
        before = status(dataset)["source_reads"]
        read(loader)
        if status(dataset)["source_reads"] == before:
            return epoch
    raise AssertionError("every epoch reads the source: the log is never filled")


@pytest.fixture
def said(caplog):
    """The number of log messages that a loader is served by index."""
    caplog.set_level(logging.INFO, "lcache")
    return lambda: [r.levelno for r in caplog.records if "is served by index" in r.getMessage()]


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("broken_off", [False, True])
def test_made_again_after_del(folder, root, said, no_collector, workers, broken_off):
    """A deleted loader loses the order at once. The next loader, whose epochs begin at 0 again, is served from the log in its order."""
    ours = opened(folder, root)
    loader = lt.DataLoader(ours, SIZE, shuffle=True, seed=1, num_workers=workers)
    fill(ours, loader)
    if broken_off:
        for _ in loader:
            break
        assert loader.state_dict()["consumed"] == 1
    before, seen = status(ours), weakref.ref(loader.batch_sampler)
    del loader
    assert seen() is None, "something still refers to the loader"
    loader = lt.DataLoader(ours, SIZE, shuffle=True, seed=2, num_workers=workers)
    digests = [read(loader) for _ in range(3)]
    assert whole_in_order(ours)[-3:] == digests
    after = status(ours)
    assert after["source_reads"] == before["source_reads"] and after["divergences"] == 0
    assert not said()


def test_watched_loaders_are_gone_at_once(folder, root, no_collector):
    ours = opened(folder, root)
    loader = lt.watch(data.DataLoader(ours, batch_sampler=data.BatchSampler(data.RandomSampler(ours), SIZE, True)))
    for _ in loader:
        pass
    seen = weakref.ref(loader), weakref.ref(loader.batch_sampler)
    del loader
    assert [ref() for ref in seen] == [None, None]


def interrupted(ours, whole):
    """A traceback as sys.last_traceback has after Ctrl-C in a notebook's cell."""
    loader = lt.DataLoader(ours, SIZE, shuffle=True, seed=1)
    for _ in range(whole):
        read(loader)
    try:
        for number, _ in enumerate(loader):
            if number:  # a loader with a single batch has not pushed yet
                raise KeyboardInterrupt
    except KeyboardInterrupt as e:
        return e


def frames(error):
    at = error.__traceback__
    while at is not None:
        yield at.tb_frame
        at = at.tb_next


@pytest.mark.parametrize("whole", [0, 2])
def test_made_again_after_an_interrupt(folder, root, said, whole):
    """A traceback keeps the abandoned loader alive. The next loader takes over in its second epoch."""
    ours = opened(folder, root)
    last = interrupted(ours, whole)
    assert [f.f_locals["loader"] for f in frames(last) if "loader" in f.f_locals], "nothing keeps the loader, so this shows nothing"
    loader = lt.DataLoader(ours, SIZE, shuffle=True, seed=2)
    first = read(loader)
    assert said() == [logging.INFO] and first not in in_order(ours)
    second = read(loader)
    assert whole_in_order(ours)[-1] == second
    fill(ours, loader)
    assert len(said()) == 1 and status(ours)["divergences"] == 0
    del last


def test_server_that_was_ended(folder, root, said):
    """A new server in the same folder counts as another server, even for a loader that is kept."""
    ours = opened(folder, root)
    kept = lt.DataLoader(ours, SIZE, shuffle=True, seed=1)
    read(kept)
    pid = ours.job.pid
    os.kill(pid, signal.SIGTERM)
    wait_for_end(pid)
    again = opened(folder, root)
    loader = lt.DataLoader(again, SIZE, shuffle=True, seed=2)
    assert again.job.pid != pid
    digests = [read(loader) for _ in range(2)]
    assert in_order(again) == digests and not said()
    # The first loader is served by index, and does not replace the new orders by its old ones.
    read(kept)
    digests.append(read(loader))
    assert in_order(again) == digests and status(again)["divergences"] == 0 and len(said()) == 1


def test_job_that_was_closed(folder, root, said):
    ours = opened(folder, root)
    kept = lt.DataLoader(ours, SIZE, shuffle=True, seed=1)
    read(kept)
    ours.job.close()
    again = opened(folder, root)
    loader = lt.DataLoader(again, SIZE, shuffle=True, seed=2)
    assert in_order(again)[1:] == [] and [read(loader) for _ in range(2)] == in_order(again)[1:]
    assert not said() and kept is not None


@pytest.mark.parametrize("workers", [0, 1])
def test_in_turn(folder, root, said, workers):
    """Training and validation over one dataset: one of them owns the order, and the log is not reordered back and forth."""
    ours = opened(folder, root)
    train = lt.DataLoader(ours, SIZE, shuffle=True, seed=1, num_workers=workers)
    check = lt.DataLoader(ours, SIZE, shuffle=True, seed=2)
    digests = []
    for _ in range(5):
        digests.append(read(train))
        read(check)
    # Each epoch of the owner was laid out and requested with positions. The other loader's orders were never pushed.
    assert in_order(ours) == digests and status(ours)["divergences"] == 0
    assert len(said()) == 1


def test_the_larger_part_is_laid_out(folder, root, said):
    """For a dataset that was split, the loader that reads more owns the order, even if validation is first, as in Lightning's sanity check."""
    ours = opened(folder, root)
    most, rest = data.random_split(ours, [0.8, 0.2], torch.Generator().manual_seed(3))
    check = lt.DataLoader(rest, SIZE)
    train = lt.DataLoader(most, SIZE, shuffle=True, seed=1)
    digests = []
    for _ in range(4):
        list(check)
        digests.append(digest([i for batch in train for i in batch.tolist()]))
    assert in_order(ours)[1:] == digests, "after the first epoch of validation only training says the order"
    assert status(ours)["divergences"] == 0 and len(said()) == 1
