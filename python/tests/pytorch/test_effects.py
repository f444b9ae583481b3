"""Samplers with effects outside themselves: counters, queues, files, a training loop that feeds them. Their epochs equal the epochs of torch's own loader."""

import multiprocessing
import os
import queue
import time

import pytest
from embedded_servers import folder, root  # noqa: F401

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)

from torch.utils import data  # noqa: E402

import lcache.torch as lt  # noqa: E402

N, SIZE, EPOCHS = 48, 8, 3


def index(_, sample):
    return sample.index


def turned(by):
    return [(i + by) % N for i in range(N)]


class Sized(data.Sampler):
    def __init__(self, tmp_path):
        pass

    def __len__(self):
        return N


class CountsOnTheClass(Sized):
    epochs = 0

    def __init__(self, tmp_path):
        CountsOnTheClass.epochs = 0

    def __iter__(self):
        CountsOnTheClass.epochs += 1
        return iter(turned(CountsOnTheClass.epochs))


class CountsInAClosure(Sized):
    def __init__(self, tmp_path):
        epochs = 0

        def count():
            nonlocal epochs
            epochs += 1
            return epochs

        self.count = count

    def __iter__(self):
        yield from turned(self.count())


QUEUE = queue.Queue()


class TakesFromAQueue(Sized):
    def __init__(self, tmp_path):
        QUEUE.queue.clear()
        for i in range(N * (EPOCHS + 1)):
            QUEUE.put(i * 5 % N)

    def __iter__(self):
        for _ in range(N):
            yield QUEUE.get(timeout=30)


class CountsInAFile(Sized):
    def __init__(self, tmp_path):
        self.path = tmp_path / "count"
        self.path.write_text("0")

    def __iter__(self):
        epochs = int(self.path.read_text()) + 1
        self.path.write_text(str(epochs))
        return iter(turned(epochs))


class KeepsAModel(Sized):
    """torch writes files without Python's open."""

    def __init__(self, tmp_path):
        self.path = tmp_path / "model.pt"
        torch.save(torch.zeros(1), self.path)

    def __iter__(self):
        self.path.replace(self.path.with_name("before.pt"))
        model = torch.load(self.path.with_name("before.pt")) + 1
        torch.save(model, self.path)
        return iter(turned(int(model)))


class SharesAQueue(Sized):
    def __init__(self, tmp_path):
        self.queue = multiprocessing.Queue()
        for i in range(N * (EPOCHS + 1)):
            self.queue.put(i * 7 % N)

    def __iter__(self):
        for _ in range(N):
            yield self.queue.get(timeout=30)


SHARED = {}


class SharesACounter(Sized):
    """Keeps the counter where no search finds it."""

    def __init__(self, tmp_path):
        SHARED["epochs"] = multiprocessing.Value("i", 0)

    def __iter__(self):
        shared = globals()["SHA" + "RED"]["epochs"]
        with shared.get_lock():
            shared.value += 1
        return iter(turned(shared.value))


class SharesATensor(Sized):
    def __init__(self, tmp_path):
        self.epochs = torch.zeros(1, dtype=torch.int64).share_memory_()

    def __iter__(self):
        self.epochs += 1
        yield from turned(int(self.epochs))


class Fed(Sized):
    """Waits for the numbers that the training loop puts in."""

    def __init__(self, tmp_path):
        self.queue = queue.Queue()
        self.drawn = 0
        for i in range(5 * SIZE):  # two workers with two batches each, and one that is drawn before a batch is returned
            self.queue.put(i)

    def __iter__(self):
        for _ in range(N):
            self.drawn += 1
            yield self.queue.get(timeout=30)


class Device:
    """Cannot be used in a forked process, like CUDA."""

    def __init__(self):
        self.pid = os.getpid()

    def count(self):
        if os.getpid() != self.pid:
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")
        return 1


class UsesADevice(Sized):
    def __init__(self, tmp_path):
        self.device, self.epochs = Device(), 0

    def __iter__(self):
        self.epochs += self.device.count()
        return iter(turned(self.epochs))


class UsesAFileThatIsOpen(Sized):
    def __init__(self, tmp_path):
        self.file = open(tmp_path / "log", "w+", buffering=1)

    def __iter__(self):
        self.file.write("epoch\n")
        self.file.seek(0)
        return iter(turned(len(self.file.readlines())))


SAMPLERS = (
    CountsOnTheClass, CountsInAClosure, TakesFromAQueue, CountsInAFile, KeepsAModel, SharesAQueue, SharesACounter, SharesATensor, UsesADevice,
    UsesAFileThatIsOpen,
)


def orders(kind, dataset, sampler, workers, epochs=EPOCHS):
    loader = kind(dataset, SIZE, sampler=sampler, num_workers=workers)
    return [[batch.tolist() for batch in loader] for _ in range(epochs)]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", SAMPLERS)
def test_order_is_torchs(folder, root, tmp_path, kind, workers):
    want = orders(data.DataLoader, range(len(folder)), kind(tmp_path), workers)
    assert orders(lt.DataLoader, lt.Dataset(folder.root, index, cache=root), kind(tmp_path), workers) == want


@pytest.mark.parametrize("workers", [0, 2])
def test_as_far_ahead_as_torch(folder, root, tmp_path, workers):
    """Draws from a sampler that the training loop feeds happen when torch's loader draws, and not earlier."""

    def epochs(kind, dataset):
        sampler, found = Fed(tmp_path), []
        loader = kind(dataset, SIZE, sampler=sampler, num_workers=workers)
        for epoch in range(EPOCHS):
            for batch in loader:
                found.append((batch.tolist(), sampler.drawn))
                for i in batch.tolist():
                    sampler.queue.put((i + epoch) % N)
        return found

    assert epochs(lt.DataLoader, lt.Dataset(folder.root, index, cache=root)) == epochs(data.DataLoader, range(len(folder)))


class Batches:
    """A batch sampler that runs code when an iterator is made."""

    def __init__(self):
        self.moments = []

    def __iter__(self):
        self.moments.append(torch.rand(()).item())
        return iter([[len(self.moments), i] for i in range(6)])

    def __len__(self):
        return 6


@pytest.mark.parametrize("workers", [0, 2])
def test_at_torchs_moments(folder, root, workers):
    def moments(kind, dataset):
        torch.manual_seed(4)
        batches, found = Batches(), []
        loader = kind(dataset, batch_sampler=batches, num_workers=workers)
        for _ in range(EPOCHS):
            iterator = iter(loader)
            found.append((len(batches.moments), torch.rand(()).item(), [batch.tolist() for batch in iterator]))
        return found, batches.moments

    assert moments(lt.DataLoader, lt.Dataset(folder.root, index, cache=root)) == moments(data.DataLoader, range(len(folder)))


class Endless(data.Sampler):
    def __iter__(self):
        generator = torch.Generator().manual_seed(5)
        while True:
            yield from torch.randperm(N, generator=generator).tolist()


class PureEndless(Endless):
    lcache_pure = True


@pytest.mark.parametrize("kind", [Endless, PureEndless])
def test_endless(folder, root, kind):
    """The first batch does not wait for the end of an endless sampler."""
    loader = lt.DataLoader(lt.Dataset(folder.root, index, cache=root), 4, sampler=kind())
    began, iterator = time.monotonic(), iter(loader)
    batches = [next(iterator).tolist() for _ in range(20)]
    assert time.monotonic() - began < 9, "it was run ahead before its first batch"
    reference = iter(data.DataLoader(range(N), 4, sampler=Endless()))
    assert batches == [next(reference).tolist() for _ in range(20)]
