"""headspace(): batches in memory, what they measure, and what is said about it. The clock is the test's own."""

import pytest
import torch.utils.data
from lcache.torch import headspace
from lcache.torch.headspace import HeadspaceReport


class Clock:
    def __init__(self):
        self.now = 100.0

    def perf_counter(self):
        return self.now

    def work(self, seconds):
        self.now += seconds


class Loader:
    """Takes a time for each batch, and counts what was asked for."""

    def __init__(self, clock, length, seconds):
        self.clock, self.length, self.seconds, self.asked = clock, length, seconds, 0

    def __len__(self):
        return self.length

    def __iter__(self):
        for number in range(self.length):
            self.clock.work(self.seconds)
            self.asked += 1
            yield number


@pytest.fixture
def clock(monkeypatch):
    import sys

    clock = Clock()
    monkeypatch.setattr(sys.modules["lcache.torch.headspace"], "time", clock)
    return clock


def train(clock, batches, seconds):
    seen = []
    for batch in batches:
        clock.work(seconds)
        seen.append(batch)
    return seen


def test_feeds_the_same_batches_again(clock):
    loader = Loader(clock, 25, 0.010)
    space = headspace(loader, batches=10)
    assert train(clock, space, 0.002) == list(range(10)) * 2 + list(range(5))
    assert loader.asked == 10
    assert len(space) == 25
    assert space.seconds == 0.010  # what the loader has, a training loop finds here, too


def test_measures_the_loop_alone_and_the_loader(clock):
    loader = Loader(clock, 50, 0.008)
    space = headspace(loader)
    train(clock, space, 0.002)
    assert space.report().best == pytest.approx(500)
    assert space.report().real is None
    assert str(space.report()) == "your loop takes 500 batches/s at best: no data path makes it faster"
    train(clock, space.real(), 0.002)
    assert space.report().real == pytest.approx(100)
    assert str(space.report()) == "your loop takes 500 batches/s at best; the loader gives 100: a faster data path could make it 5.0 times as fast"


def test_a_loader_that_keeps_up(clock):
    space = headspace(Loader(clock, 40, 0.0))
    train(clock, space, 0.1)
    train(clock, space.real(), 0.1)
    assert str(space.report()) == "your loop takes 10 batches/s at best; the loader gives 10: change nothing"


@pytest.mark.parametrize("length", [0, 1, 10])
def test_short_loaders(clock, length):
    space = headspace(Loader(clock, length, 0.01))
    assert train(clock, space, 0.01) == list(range(length))
    assert space.report() == HeadspaceReport(None, None)
    assert "nothing measured" in str(space.report())


def test_refuses_no_batches(clock):
    with pytest.raises(ValueError, match="at least 1 batch"):
        headspace(Loader(clock, 5, 0.0), batches=0)


def test_a_loader_of_torch():
    data = torch.utils.data.TensorDataset(torch.arange(64))
    space = headspace(torch.utils.data.DataLoader(data, batch_size=2, num_workers=2), batches=3)
    seen = [batch[0].tolist() for batch in space]
    assert len(seen) == 32
    assert seen[:3] == [[0, 1], [2, 3], [4, 5]] == seen[3:6]
    assert space.report().best > 0
    assert space.batch_size == 2
