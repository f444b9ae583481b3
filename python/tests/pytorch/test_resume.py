"""A resume continues at the next sample, with other numbers of workers and ranks, and after kills. It refuses a different order."""

import json
import os
import signal
import subprocess
import sys

import pytest
from embedded_servers import folder, root  # noqa: F401
from waits import wait_for_end

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)

from torch.utils import data  # noqa: E402

import lcache  # noqa: E402
import lcache.torch as lt  # noqa: E402
from lcache.torch._order.ranks import digest  # noqa: E402

EPOCHS, SIZE = 3, 16


def index(_, sample):
    return sample.index


def lists(loader):
    return [batch.tolist() for batch in loader]


def fresh(folder, root, workers=0, seed=5, **more):
    return lt.DataLoader(lt.Dataset(folder.root, index, cache=root), SIZE, shuffle=True, seed=seed, num_workers=workers, **more)


@pytest.fixture(scope="module")
def want(folder):
    loader = data.DataLoader(range(len(folder)), SIZE, shuffle=True, generator=torch.Generator().manual_seed(5))
    return [lists(loader) for _ in range(EPOCHS)]


@pytest.mark.parametrize("epoch, batches, workers", [(0, 0, 2), (0, 4, 0), (1, 1, 2), (1, 14, 0), (2, 7, 1)])
def test_other_workers(folder, root, want, epoch, batches, workers):
    loader = fresh(folder, root, workers=2 - workers)
    for e in range(epoch):
        assert lists(loader) == want[e]
    iterator = iter(loader)
    assert [next(iterator).tolist() for _ in range(batches)] == want[epoch][:batches]
    state = json.loads(json.dumps(loader.state_dict()))
    assert set(state) == {"v", "seed", "epoch", "consumed", "world", "batch_size", "fingerprint", "order_digest"}
    assert (state["seed"], state["epoch"], state["consumed"], state["world"], state["batch_size"]) == (5, epoch, batches, 1, SIZE)
    assert state["order_digest"] == digest([i for batch in want[epoch] for i in batch])

    again = fresh(folder, root, workers=workers)
    again.load_state_dict(state)
    assert again.state_dict() == state
    assert lists(again) == want[epoch][batches:]
    for e in range(epoch + 1, EPOCHS):
        assert lists(again) == want[e]


@pytest.mark.parametrize("seed", [5, 6], ids=["resumed", "begun in another order"])
def test_after_the_server_ended(tmp_path, root, seed):
    """The log stays useful, although the next server gets the order only from the next loader."""
    samples, size = 6000, 60
    os.makedirs(tmp_path / "source" / "all")
    for i in range(samples):  # together more than the window holds
        (tmp_path / "source" / "all" / f"{i:04}").write_bytes(i.to_bytes(4, "little") * 4000)

    def loader(seed):
        dataset = lt.Dataset(tmp_path / "source", lambda data, _: int.from_bytes(data[:4], "little"), cache=root)
        return lt.DataLoader(dataset, size, shuffle=True, seed=seed)

    reference = data.DataLoader(range(samples), size, shuffle=True, generator=torch.Generator().manual_seed(seed))
    want = [lists(reference) for _ in range(3)]
    first = loader(5)
    for _ in first:
        pass
    iterator = iter(first)
    for _ in range(50):
        next(iterator)
    state, pid = first.state_dict(), first.dataset.job.pid
    del iterator
    os.kill(pid, signal.SIGTERM)
    wait_for_end(pid)
    del first
    again = loader(seed)
    if seed == 5:
        again.load_state_dict(state)
        assert lists(again) == want[1][50:]
        assert lists(again) == want[2]
    else:
        assert [lists(again) for _ in want] == want
    status = again.dataset.job.stats()["jobs"][0]
    assert again.dataset.job.pid != pid
    # At the boundary of the two Logfiles a few samples may not fit.
    assert max(status["source_reads"], status["misses"]) <= (0 if seed == 5 else samples // 50)


def test_between_epochs(folder, root, want):
    loader = fresh(folder, root)
    assert lists(loader) == want[0]
    state = loader.state_dict()
    assert (state["epoch"], state["consumed"]) == (1, 0)
    again = fresh(folder, root)
    again.load_state_dict(state)
    assert lists(again) == want[1]


def test_twice_in_one_epoch(folder, root, want):
    state, read = None, []
    for batches in (3, 5, 7):
        loader = fresh(folder, root)
        if state is not None:
            loader.load_state_dict(state)
        iterator = iter(loader)
        read += [next(iterator).tolist() for _ in range(batches)]
        state = loader.state_dict()
    assert read == want[0]


def test_drawn_seed_is_taken_over(folder, root):
    first = lt.DataLoader(lt.Dataset(folder.root, index, cache=root), SIZE, shuffle=True)
    state = first.state_dict()
    iterator = iter(first)
    begun = [next(iterator).tolist() for _ in range(3)]
    state = first.state_dict()
    second = lt.DataLoader(lt.Dataset(folder.root, index, cache=root), SIZE, shuffle=True)
    second.load_state_dict(state)
    rest = lists(second)
    assert sorted(i for batch in begun + rest for i in batch) == list(range(len(folder)))
    assert lists(second) != lists(second)


def distributed(ours, world, rank, size, drop_last=False):
    sampler = data.DistributedSampler(ours, world, rank, seed=2, drop_last=drop_last)
    return lt.DataLoader(ours, size, sampler=sampler, drop_last=drop_last)


@pytest.mark.parametrize("worlds, sizes", [((2, 2), (16, 16)), ((2, 3), (16, 16)), ((3, 1), (8, 16)), ((1, 4), (16, 4)), ((2, 2), (16, 10)), ((4, 3, 2), (8, 8, 8))])
def test_other_world(folder, root, worlds, sizes):
    """Every sample of the global order is read once, in order, by any sequence of world sizes."""
    ours = lt.Dataset(folder.root, index, cache=root)
    whole = list(data.DistributedSampler(range(len(folder)), 1, 0, seed=2))  # epoch 0
    seen, state = [], None
    for turn, (world, size) in enumerate(zip(worlds, sizes)):
        loaders = [distributed(ours, world, rank, size) for rank in range(world)]
        if state is not None:
            for loader in loaders:
                loader.load_state_dict(state)
        iterators = [iter(loader) for loader in loaders]
        last = turn == len(worlds) - 1
        for _ in range(1000 if last else 2):
            step = [next(iterator, None) for iterator in iterators]
            if step[0] is None:
                break
            # All ranks of one step together are a contiguous part of the global order.
            columns = [batch.tolist() for batch in step]
            seen += [column[k] for k in range(len(columns[0])) for column in columns]
        states = [loader.state_dict() for loader in loaders]
        assert all(s == states[0] for s in states)
        state = states[0]
        del iterators, loaders
    assert seen[: len(whole)] == whole
    assert len(seen) - len(whole) < worlds[-1], "more than padding was read twice"


def test_next_epoch_after_another_world(folder, root):
    ours = lt.Dataset(folder.root, index, cache=root)
    loader = distributed(ours, 2, 0, SIZE)
    next(iter(loader))
    state = loader.state_dict()
    loader = distributed(ours, 3, 2, SIZE)
    loader.load_state_dict(state)
    lists(loader)
    loader.set_epoch(1)
    sampler = data.DistributedSampler(range(len(folder)), 3, 2, seed=2)
    sampler.set_epoch(1)
    assert [i for batch in lists(loader) for i in batch] == list(sampler)


def test_refused(folder, root, tmp_path):
    loader = fresh(folder, root)
    next(iter(loader))
    state = loader.state_dict()
    with pytest.raises(lcache.Error, match="seed 5, and this loader has seed 6"):
        fresh(folder, root, seed=6).load_state_dict(state)
    with pytest.raises(lcache.Error, match="version 2"):
        fresh(folder, root).load_state_dict({**state, "v": 2})
    with pytest.raises(lcache.Error, match="another dataset"):
        fresh(folder, root).load_state_dict({**state, "fingerprint": "0" * 32})
    other = fresh(folder, root)
    other.load_state_dict({**state, "order_digest": "0" * 64})
    with pytest.raises(lcache.Error, match="its order differs from the saved one"):
        next(iter(other))


TRAINER = """
import json, sys, lcache.torch as lt
from test_resume import fresh, index
class Folder: root = sys.argv[1]
loader = fresh(Folder, sys.argv[2], workers=int(sys.argv[3]))
if len(sys.argv) > 4:
    loader.load_state_dict(json.loads(sys.argv[4]))
for batch in loader:
    print(json.dumps([loader.dataset.job.pid, batch.tolist(), loader.state_dict()]), flush=True)
    if len(sys.argv) <= 4: sys.stdin.readline()
"""


def test_kill_of_trainer_and_server(folder, root, want):
    trainer = subprocess.Popen([sys.executable, "-c", TRAINER, folder.root, root, "2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               start_new_session=True)
    read = []
    for _ in range(6):
        server, batch, state = json.loads(trainer.stdout.readline())
        read.append(batch)
        trainer.stdin.write("\n")
        trainer.stdin.flush()
    os.killpg(trainer.pid, signal.SIGKILL)
    os.kill(server, signal.SIGKILL)
    trainer.communicate()
    again = subprocess.run([sys.executable, "-c", TRAINER, folder.root, root, "0", json.dumps(state)], stdout=subprocess.PIPE, text=True, check=True)
    lines = [json.loads(line) for line in again.stdout.splitlines()]
    assert lines[0][0] != server
    assert read + [line[1] for line in lines] == want[0]


@pytest.mark.parametrize("workers", [0, 2])
def test_server_killed_while_training(folder, root, want, workers):
    loader = fresh(folder, root, workers=workers)
    for epoch in range(EPOCHS):
        got = []
        for batch in loader:
            got.append(batch.tolist())
            if len(got) == 5:
                loader.dataset.job.stats()  # the pid is that of the last connect
                os.kill(loader.dataset.job.pid, signal.SIGKILL)
        assert got == want[epoch]
