"""torch's samplers, computed as arrays: the batches, their moments, and the states of every generator equal torch's."""

import itertools
import logging
import os
import random
import subprocess
import sys
import threading
from array import array

import fakeserver
import pytest
from embedded_servers import folder, root  # noqa: F401

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)

from torch.utils import data  # noqa: E402

import lcache  # noqa: E402
import lcache.torch as lt  # noqa: E402
from lcache._client.orders import Order  # noqa: E402
from lcache.torch._order import known_samplers  # noqa: E402
from lcache.torch._order.computed_epoch import ComputedEpoch, private  # noqa: E402
from lcache.torch._order.known_samplers import known_sampler  # noqa: E402
from lcache.torch._order.wrappers import Translation  # noqa: E402


def generator():
    return torch.Generator().manual_seed(3)


N = 101
SAMPLERS = {
    "sequential": lambda g: data.SequentialSampler(range(N)),
    "empty": lambda g: data.SequentialSampler([]),
    "random": lambda g: data.RandomSampler(range(N), generator=g),
    "some": lambda g: data.RandomSampler(range(N), num_samples=40, generator=g),
    "more": lambda g: data.RandomSampler(range(N), num_samples=3 * N + 7, generator=g),
    "just twice": lambda g: data.RandomSampler(range(N), num_samples=2 * N, generator=g),
    "subset": lambda g: data.SubsetRandomSampler([7, 3, 3, 90, 12], generator=g),
    "range": lambda g: data.SubsetRandomSampler(range(90, 2, -4), generator=g),
    "tensor": lambda g: data.SubsetRandomSampler(torch.arange(30) * 3, generator=g),
    "empty subset": lambda g: data.SubsetRandomSampler([], generator=g),
    "weighted": lambda g: data.WeightedRandomSampler([1.0 + i % 5 for i in range(N)], 70, True, generator=g),
    "weighted once": lambda g: data.WeightedRandomSampler([1.0 + i % 5 for i in range(N)], 70, False, generator=g),
}
WORLDS = [(1, 0), (2, 1), (7, 6), (101, 3), (300, 250)]
for _world, _rank in WORLDS:
    for _shuffle in (False, True):
        for _drop in (False, True):
            if _world <= N or not _drop:
                SAMPLERS[f"distributed {_world} {_rank} {_shuffle} {_drop}"] = lambda g, w=_world, r=_rank, s=_shuffle, d=_drop: data.DistributedSampler(
                    range(N), w, r, s, 11, d
                )


@pytest.mark.parametrize("name", SAMPLERS)
def test_batches_and_states_are_torchs(name):
    """After each batch the generator has the state that torch's own sampler leaves, whatever was drawn in advance."""
    for size, drop_last, ahead in itertools.product((1, 10, 101), (False, True), ("", "draw", "finish")):
        check_batches_and_states(name, size, drop_last, ahead)


def check_batches_and_states(name, size, drop_last, ahead):
    theirs, mine = generator(), generator()
    reference = iter(data.BatchSampler(SAMPLERS[name](theirs), size, drop_last))
    known = known_sampler(data.BatchSampler(SAMPLERS[name](mine), size, drop_last))
    assert known is not None and not known.lazy
    epoch = ComputedEpoch(known, 0, private(known.generator))
    if ahead:
        epoch.draw()
    if ahead == "finish":
        epoch.finish()
    got = []
    for batch in epoch.batches(known.generator):
        assert batch == next(reference)
        assert torch.equal(theirs.get_state(), mine.get_state())
        got.append(batch)
    assert next(reference, None) is None
    assert torch.equal(theirs.get_state(), mine.get_state())
    assert epoch.draw().order[:] == got
    again = ComputedEpoch(known, 0, generator() if known.generator is not None else None).draw()
    for skip in (1, len(got)):
        assert list(again.batches(generator() if known.generator is not None else None, skip)) == got[skip:]


def test_a_generator_that_others_draw_from():
    """Numbers drawn in advance are dropped if the generator has another state when torch's sampler would draw."""
    theirs, mine = generator(), generator()
    reference, known = data.RandomSampler(range(N), generator=theirs), known_sampler(data.BatchSampler(data.RandomSampler(range(N), generator=mine), 10, False))
    epoch = ComputedEpoch(known, 0, private(mine)).draw()
    torch.rand(3, generator=theirs), torch.rand(3, generator=mine)
    assert [i for batch in epoch.batches(mine) for i in batch] == list(reference)
    assert torch.equal(theirs.get_state(), mine.get_state())


class Mine(data.RandomSampler):
    pass


class Cut(lt.BatchSampler):
    def batches(self):
        yield [1, 2]


class Drawing:
    """A dataset that draws from its own generator in __len__."""

    def __init__(self):
        self.generator = generator()

    def __len__(self):
        return 9

    def __iter__(self):
        return iter(range(9))


UNKNOWN = {
    "subclass": lambda: data.BatchSampler(Mine(range(N)), 4, False),
    "iterable": lambda: data.BatchSampler(range(N), 4, False),
    "cut": lambda: Cut(data.SequentialSampler(range(N)), 4, False),
    "drawing": lambda: data.BatchSampler(data.RandomSampler(Drawing()), 4, False),
    "list": lambda: [[1, 2], [3]],
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown(name):
    assert known_sampler(UNKNOWN[name]()) is None


def test_a_release_with_another_way_is_not_known(monkeypatch):
    class Backwards(data.SequentialSampler):
        def __iter__(self):
            return iter(range(len(self.data_source) - 1, -1, -1))

    batches = data.BatchSampler(Backwards(range(N)), 4, False)
    monkeypatch.setitem(known_samplers._STEPS, Backwards, known_samplers._STEPS[data.SequentialSampler])
    monkeypatch.setitem(known_samplers._EXAMPLES, Backwards, lambda: [Backwards(range(5))])
    assert known_sampler(batches) is None
    assert all(known_samplers._is_as_computed(kind) for kind in list(known_samplers._STEPS) if kind is not Backwards), "this release's samplers are known"


class Sink(fakeserver.Server):
    """Accepts orders of any size, and keeps only their number of samples."""

    def answer(self, kind, body, mine):
        if kind == fakeserver.p.PUSH:
            epoch, rank, first, more, count = fakeserver.struct.unpack_from("<IIIII", body)
            with self.lock:
                self.pushed.setdefault((epoch, rank), []).append((first, more, count, len(body)))
                self.lock.notify_all()
            return fakeserver.p.A_OK, b""
        return super().answer(kind, body, mine)


@pytest.fixture
def sink(path, serve):
    return lambda **info: (serve(Sink, features=["report"], **info), lt.Dataset(socket=path, decode=index))


def index(_, sample):
    return sample.index


def peak(reset=False):
    """(the peak memory of this process since the last reset, its memory now), in bytes."""
    if reset:
        with open("/proc/self/clear_refs", "w") as f:
            f.write("5")
    with open("/proc/self/status") as f:
        found = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in f if line.startswith(("VmHWM", "VmRSS"))}
    return found["VmHWM"], found["VmRSS"]


def empty_batch(indices):
    """A batch of samples without bytes."""
    n = len(indices)
    columns = lcache._client.protocol.Columns(0, 0, (0,) * n, (0,) * n, memoryview(array("I", indices)), memoryview(bytes(4 * n)).cast("i"))
    return lcache.Batch(columns, [memoryview(b"")] * n, lambda _: [])


@pytest.mark.parametrize("kind, seed", [("dataset", None), ("dataset", 1), ("subset", 1), ("list", 1), ("concat", None)])
def test_memory(sink, kind, seed):
    """Millions of samples need bytes, not objects. torch's sampler makes a list of integers, with 40 bytes each."""
    n, size = 2_000_000, 1000
    server, ours = sink(samples=1000)
    ours._length = n  # the server has fewer samples, and only the first batch is requested
    ours.job.get = lambda indices, at: empty_batch(indices)
    over = {"dataset": ours, "subset": data.Subset(ours, range(n)), "list": data.Subset(ours, list(range(n)))}
    dataset = over.get(kind) or data.ConcatDataset([data.Subset(ours, range(n // 2)), data.Subset(ours, range(n // 2, n))])
    loader = lt.DataLoader(dataset, size, shuffle=True, seed=seed, collate_fn=len)
    next(iter(data.DataLoader(range(N), 10, shuffle=True)))  # torch's one-time setup
    torch.randperm(n, dtype=torch.int32)
    _, before = peak(reset=True)
    iterator = iter(loader)
    assert next(iterator) == size
    most, _ = peak()
    assert most - before < 16 * n + (8 << 20), f"{(most - before) / n:.1f} bytes a sample before the first batch"
    assert next(iterator) == next(iterator) == size
    assert server.wait_for(lambda: len(server.pushed) == 3 and not server.pushed.get((2, 0), [(0, 1)])[-1][1], 60)
    assert peak()[0] - before < 60 * n + (64 << 20), "later epochs: two may be drawn at once"
    assert {key: sum(count for _, _, count, _ in pieces) for key, pieces in server.pushed.items()} == {(e, 0): n // size for e in range(3)}
    assert len(server.pushed[0, 0]) == -(-n // lcache._client.protocol.PUSH_PIECE)


def test_later_epochs_are_computed_during_the_loop(sink, monkeypatch):
    """Later epochs are pushed from another thread. Only the loop's thread uses a global random state."""
    server, ours = sink()
    threads = {}

    def noted(owner, name):
        real = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *a, **k: (threads.setdefault(name, set()).add(threading.current_thread().name), real(*a, **k))[1])

    for owner, name in ((torch, "get_rng_state"), (torch, "set_rng_state"), (random, "getstate"), (random, "setstate"), (torch, "randperm")):
        noted(owner, name)
    noted(lt.dataset.Job, "push_order")
    loader = lt.DataLoader(ours, 10, shuffle=True, seed=1)
    for _ in range(2):
        assert sum(len(batch) for batch in loader) == 1000
    assert threads.pop("push_order") == {"MainThread", "lcache-orders"}
    assert threads.pop("randperm") == {"MainThread", "lcache-orders"}
    assert set().union(*threads.values()) <= {"MainThread"}
    assert sorted(server.pushed) == [(e, 0) for e in range(3)], "the job has three epochs"


class Own(data.Sampler):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __iter__(self):
        where.append(threading.current_thread().name)
        order = list(range(self.n))
        random.shuffle(order)
        return iter(order)


where = []


def test_unknown_samplers_run_once_an_epoch(sink):
    """In this process, and in the loop's thread."""
    _, ours = sink()
    where.clear()
    for _ in range(2):
        assert sum(len(batch) for batch in lt.DataLoader(ours, 10, sampler=Own(1000))) == 1000
    assert where == ["MainThread", "MainThread"]


class Stuck(Sink):
    """Answers only the first epoch's order."""

    def answer(self, kind, body, mine):
        answer = super().answer(kind, body, mine)
        return None if kind == fakeserver.p.PUSH and (1, 0) in self.pushed else answer


def test_a_server_that_refuses_later_orders(path, serve, caplog):
    """The loop continues, and logs once that later epochs are not pushed."""
    caplog.set_level(logging.INFO, "lcache")
    serve(Stuck, features=["report"])
    ours = lt.Dataset(socket=path, decode=index, timeout=1.0)
    loader = lt.DataLoader(ours, 100, shuffle=True, seed=1)
    reference = data.DataLoader(range(1000), 100, shuffle=True, generator=torch.Generator().manual_seed(1))
    assert [b.tolist() for b in loader] == [b.tolist() for b in reference]
    ours.job.push_order = lambda *_: None
    assert [b.tolist() for b in loader] == [b.tolist() for b in reference]
    assert caplog.text.count("could not be pushed in advance") == 1


def test_a_loader_that_lost_the_order_stops_pushing(sink):
    """Orders that the thread has not pushed yet are dropped, because another loader now owns the order."""
    server, ours = sink()
    first = lt.DataLoader(ours, 10, shuffle=True, seed=1)
    iterator = iter(first)
    next(iterator)
    with ours.job.pushing:  # the thread waits for this
        next(iterator)
        assert "lcache-orders" in [thread.name for thread in threading.enumerate()]
        first.batch_sampler.order_ahead._pusher._ownership.ended.set()
    first.batch_sampler.order_ahead._foreseen.settle()
    assert set(server.pushed) == {(0, 0)}


EXIT = """
import sys
import lcache.torch as lt
loader = lt.DataLoader(lt.Dataset(socket=sys.argv[1], decode=lambda _, s: s.index), 10, shuffle=True, seed=1)
iterator = iter(loader)
next(iterator), next(iterator)
print("end", flush=True)
"""


def test_exit_while_orders_are_computed(path, serve):
    serve(Sink, features=["report"], samples=1000)
    done = subprocess.run([sys.executable, "-c", EXIT, path], capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_translated_as_columns(folder, root):
    """The translation of a column through Subset and ConcatDataset equals that of its indices one by one."""
    tree, flat = lt.Dataset(folder.root, index, cache=root), lt.Dataset(folder.root, index, cache=root, flat=True)
    draw = random.Random(5)
    some = data.Subset(tree, [draw.randrange(-240, 240) for _ in range(77)])
    for dataset in (
        data.Subset(tree, range(200, 10, -3)),
        data.Subset(some, torch.tensor([3, 5, 76, 3])),
        data.ConcatDataset([tree, some, flat, data.Subset(flat, range(9)), tree]),
    ):
        translation = Translation(dataset)
        batches = [[draw.randrange(len(dataset)) for _ in range(draw.choice((1, 5, 30)))] for _ in range(20)]
        want = [translation.parts(batch) for batch in batches]
        got = translation.part_orders(Order.of_batches(batches))
        assert {leaf: order[:] for leaf, order in got.items()} == {leaf: [part[leaf] for part in want] for leaf in got}
        assert set(got) == {leaf.lcache_id for leaf in translation.leaves}
        with pytest.raises(IndexError):
            translation.part_orders(Order.of_batches([[len(dataset)]]))
