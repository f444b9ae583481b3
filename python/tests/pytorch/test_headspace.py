"""headspace(): the batches from memory, the measured times, and the report. The tests have their own clock, except under lcache run."""

import json
import subprocess
import sys

import pytest
import realserver
import torch.utils.data
from embedded_servers import folder, root  # noqa: F401
from lcache.torch import headspace, watch
from lcache.torch.headspace import HeadspaceReport


class Clock:
    def __init__(self):
        self.now = 100.0

    def perf_counter(self):
        return self.now

    def work(self, seconds):
        self.now += seconds


class Loader:
    """A loader that takes some time for each batch, and counts the requested batches."""

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
    assert space.seconds == 0.010  # attributes of the loader are also found here


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


def test_refuses_zero_batches(clock):
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


TRAIN = """
import sys
import lcache.torch as lt

dataset = lt.Dataset(sys.argv[1], lambda data, sample: sample.index)
loader = lt.DataLoader(dataset, 4, shuffle=True, seed=3, num_workers=int(sys.argv[2]))
check = lt.DataLoader(dataset, 60)
for epoch in range(2):
    batches = [batch.tolist() for batch in loader]
    assert len(batches) == len(loader) == 60
    assert len({i for batch in batches[:30] for i in batch}) == 120
    assert batches[30:] == [batches[i % 10] for i in range(30)], batches
    assert len(list(check)) == 4
done = dataset.job.stats()["jobs"]
assert all(len(e["epochs_done"]) == 2 and e["divergences"] == 0 for e in done), done
for i, batch in enumerate(loader):
    if i == 5:
        break
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_run_headspace(folder, root, tmp_path, workers):  # noqa: F811
    """Under lcache run --headspace the second half of an epoch comes from memory, the server delivers complete epochs, and the run reports the times of both halves."""
    (tmp_path / "train.py").write_text(TRAIN)
    command = [realserver.BINARY, "run", "--headspace", "--json", "--cache", root, "--source", folder.root, "--", sys.executable, "train.py", folder.root, workers]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    train, check = said["headspace"]
    assert train["best_batches_per_second"] > 0 and train["real_batches_per_second"] > 0 and not train["first_epoch"]
    assert check["real_batches_per_second"] > 0
    assert [len(job["epochs_done"]) for job in said["sources"][0]["status"]["jobs"]] == [2, 2]


def test_run_without_headspace(folder, tmp_path, monkeypatch):  # noqa: F811
    """Nothing changes without the variable, or for a loader without a length."""

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(6))

    loader = watch(torch.utils.data.DataLoader(Stream(), batch_size=2))
    assert len(list(loader)) == 3
    monkeypatch.setenv("LCACHE_HEADSPACE_NOTES", str(tmp_path / "notes"))
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5]]
    assert not (tmp_path / "notes").exists()
