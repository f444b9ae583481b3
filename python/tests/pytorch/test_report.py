"""The log of a training loop: one line for each epoch, and each warning once."""

import logging
import os
import re
import shutil

import pytest
from embedded_servers import entry_of, folder, patient, pushed, root  # noqa: F401
from waits import until, wait_for_end

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)

from torch.utils import data  # noqa: E402

import lcache  # noqa: E402
import lcache.torch as lt  # noqa: E402
from lcache.torch._order import loop_names  # noqa: E402
from lcache.torch.epoch_report import EpochReport  # noqa: E402


def index(_, sample):
    return sample.index


def test_line_an_epoch(folder, root, caplog):
    caplog.set_level(logging.INFO, "lcache")
    ours = lt.Dataset(folder.root, index, cache=root)
    loader = lt.DataLoader(ours, 16, shuffle=True, seed=1)
    for epoch in range(2):
        list(loader)
        (line,) = [r.getMessage() for r in caplog.records if f"epoch {epoch}:" in r.getMessage()]
        digest = loader.batch_sampler.order_ahead.digest(epoch)
        assert re.fullmatch(rf"{os.path.basename(folder.root)} · epoch {epoch}: [0-9.e-]+ s, loop waited [0-9.]+ %, \d+ MB/s, exact {digest[:4]}…", line)
    assert digest in [e["order_digest"] for e in ours.job.stats()["jobs"][0]["epochs_done"]]


def told(caplog, epoch):
    """The statements about the order in the log lines of an epoch."""
    return [r.getMessage().rpartition(", ")[2] for r in caplog.records if f" · epoch {epoch}:" in r.getMessage()]


@pytest.mark.parametrize("wrap", [lambda ours: ours, lambda ours: data.Subset(ours, range(100, 40, -1))], ids=["all", "a subset"])
def test_the_digest_is_the_servers(folder, root, caplog, wrap):
    """A line has the same digest as the status: that of the delivered samples, by the server's indices."""
    caplog.set_level(logging.INFO, "lcache")
    ours = lt.Dataset(folder.root, index, cache=root)
    loader = lt.DataLoader(wrap(ours), 7, shuffle=True, drop_last=True, seed=1)
    for epoch in range(2):
        list(loader)
        (line,) = told(caplog, epoch)
        (served,) = until(lambda: [e["order_digest"] for e in entry_of(loader)["epochs_done"] if e["epoch"] == epoch and e["order_digest"]], "the digest of the epoch")
        assert line == f"exact {served[:4]}…"


def test_no_digest_of_a_part_of_the_epoch(folder, root, caplog):
    """One of two ranks, or a resumed loop, does not know all deliveries of the epoch. Then only the status has the digest."""
    caplog.set_level(logging.INFO, "lcache")
    ours = lt.Dataset(folder.root, index, cache=root)
    halves = [lt.DataLoader(ours, 8, sampler=data.DistributedSampler(ours, 2, rank, seed=3)) for rank in range(2)]
    for half in halves:
        list(half)
    assert told(caplog, 0) == ["exact", "exact"]
    caplog.clear()
    loader = lt.DataLoader(ours, 8, shuffle=True, seed=1)
    loop = iter(loader)
    next(loop)
    state = loader.state_dict()
    again = lt.DataLoader(ours, 8, shuffle=True, seed=1)
    again.load_state_dict(state)
    list(again)
    assert told(caplog, 0) == ["exact"]


def test_speed_is_the_loops_own(folder, root, caplog):
    """Two ranks and another loader share a server. Each line counts only the bytes of its own loop."""
    caplog.set_level(logging.INFO, "lcache")
    ours = lt.Dataset(folder.root, index, cache=root)
    halves = [lt.DataLoader(ours, 8, sampler=data.DistributedSampler(ours, 2, rank, shuffle=False)) for rank in range(2)]
    whole = lt.DataLoader(ours, 16)
    size = sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(folder.root) for f in files)
    loops, own = [iter(loader) for loader in (*halves, whole)], []
    for loop in loops:
        next(loop)
    for loop, share in zip(loops, (0.5, 0.5, 1.0)):
        list(loop)
        own.append((loop._report._own_bytes(ours.job.stats()["jobs"][0]), share * size))
    for got, want in own:
        assert abs(got / want - 1) < 0.05, own
    assert caplog.text.count(" MB/s") == 3


def test_speed_of_batches_without_a_size(folder, root, caplog):
    """Without batch_size the number of samples is unknown, so the line has no speed."""
    caplog.set_level(logging.INFO, "lcache")
    ours = lt.Dataset(folder.root, index, cache=root)
    list(lt.DataLoader(ours, batch_sampler=[[0, 1], [2], [3, 4, 5]], collate_fn=list))
    (line,) = [r.getMessage() for r in caplog.records if "epoch 0:" in r.getMessage()]
    assert "MB/s" not in line and "loop waited" in line


def lines_of(caplog):
    """The beginnings of the log lines of epochs."""
    return [line.partition(":")[0] for line in (r.getMessage() for r in caplog.records) if "loop waited" in line]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("resumed", [False, True])
def test_line_comes_with_the_last_batch(folder, root, caplog, workers, resumed):
    """A loop that counts batches, like Lightning's, never requests one more. The line is logged once in either case."""
    caplog.set_level(logging.INFO, "lcache")
    loader = lt.DataLoader(lt.Dataset(folder.root, index, cache=root), 16, shuffle=True, seed=1, num_workers=workers)
    name, skip = os.path.basename(folder.root), 0
    if resumed:
        loop = iter(loader)
        next(loop)
        state, skip = loader.state_dict(), 1
        del loop
        loader.load_state_dict(state)
    loop = iter(loader)
    for _ in range(len(loader) - skip - 1):
        next(loop)
    assert lines_of(caplog) == []
    next(loop)
    assert lines_of(caplog) == [f"{name} · epoch 0"]
    del loop
    list(loader)
    assert lines_of(caplog) == [f"{name} · epoch 0", f"{name} · epoch 1"]


def test_lines_name_the_dataset(folder, root, caplog, tmp_path):
    """Log lines distinguish loaders of one process by the last parts of their paths, ranks by their numbers, and loaders over one dataset by a number."""
    caplog.set_level(logging.INFO, "lcache")
    for way in ("a/train", "b/train", "b/val"):
        shutil.copytree(folder.root, tmp_path / way)
    a, b, val = (lt.Dataset(tmp_path / way, index, cache=root) for way in ("a/train", "b/train", "b/val"))
    loaders = [
        lt.DataLoader(a, 16),
        lt.DataLoader(b, 16, sampler=data.DistributedSampler(b, 2, 1)),
        lt.DataLoader(val, 16),
        lt.DataLoader(val, 32),
        lt.DataLoader(data.ConcatDataset([a, val]), 16),
    ]
    for loader in loaders:
        list(loader)
    assert lines_of(caplog) == ["a/train · epoch 0", "b/train · rank 1 · epoch 0", "val · epoch 0", "val (loader 2) · epoch 0", "a/train+val · epoch 0"]


@pytest.mark.parametrize(
    "source, others, want",
    [
        ("/data/train", ["/data/val"], "train"),
        ("/data/a/train", ["/data/b/train", "/c"], "a/train"),
        ("/data", ["/x/data"], "/data"),
        ("tar:/data/train-{000..146}.tar", ["tar:/data/val-{0..5}.tar"], "train"),
        ("tar:/data/shards/*.tar", [], "shards"),
        ("s3://bucket/imagenet/train/", ["/imagenet/train"], "bucket/imagenet/train"),
        ("/", [], "/"),
    ],
)
def test_short_names(source, others, want):
    assert loop_names.short_name(source, {source, *others}) == want


def test_times():
    """The time in next() counts as waiting, and the rest as the loop's own work."""
    report = EpochReport(None, None)
    began = report._began
    report.note_batch(began + 1, began + 4)
    report.note_batch(began + 6, began + 6.5)
    assert (round(report.loop_wait_seconds, 3), round(report.busy_seconds, 3)) == (3.5, 3.0)


def test_epoch_never_advanced(folder, root, caplog):
    ours = lt.Dataset(folder.root, index, cache=root)
    loader = lt.DataLoader(ours, 16, sampler=data.DistributedSampler(ours, 2, 0))
    first, second, third = [[b.tolist() for b in loader] for _ in range(3)]
    assert first == second == third, "torch's order without set_epoch is the same each time"
    assert caplog.text.count("so this epoch has the order of the last one") == 1
    assert loader.batch_sampler.order_ahead.epoch == 2


class Shared(data.Sampler):
    """Draws from an object that another process does not have."""

    def __init__(self, n, shared):
        self.n, self.shared = n, shared

    def __len__(self):
        return self.n

    def __iter__(self):
        yield from range(self.n - 1)
        yield next(self.shared)


class Forgetful:
    """Has a different number in each process."""

    def __init__(self):
        self.pid = os.getpid()

    def __next__(self):
        return int(os.getpid() != self.pid)

    def __iter__(self):
        return self


def test_divergence(folder, root, caplog, patient):
    caplog.set_level(logging.INFO, "lcache")
    ours = lt.Dataset(folder.root, index, cache=root)
    loader = lt.DataLoader(ours, 16, sampler=Shared(33, Forgetful()))
    for _ in range(2):
        assert [i for b in loader for i in b.tolist()][:32] == list(range(32))
    assert caplog.text.count("the order differs") == 1
    assert "epoch 0 batch 2 position 0" in caplog.text
    assert loader.batch_sampler.order_ahead.exact is False


@pytest.mark.parametrize("kept, warns", [(50, 1), (100, 0)])
def test_small_cache(folder, root, caplog, kept, warns):
    ours = lt.Dataset(folder.root, index, cache=root)
    loader = lt.DataLoader(ours, 16)
    report = EpochReport(loader.batch_sampler.order_ahead, loader)
    for _ in range(2):
        report._warn({"kept_bytes": kept, "dataset_bytes": 100}, 1.0)
    assert caplog.text.count("more disk space") == warns


@pytest.mark.parametrize("epoch, waited, says", [(1, 0.1, 1), (1, 0.3, 0), (0, 0.1, 0)])
def test_the_loop_is_the_slowest_part(folder, root, caplog, epoch, waited, says):
    """Logged once, at INFO and not as a warning. The first epoch does not count, because later ones differ from it."""
    caplog.set_level(logging.INFO, "lcache")
    loader = lt.DataLoader(lt.Dataset(folder.root, index, cache=root), 16)
    report = EpochReport(loader.batch_sampler.order_ahead, loader)
    loader.batch_sampler.order_ahead._numbers.current, report.loop_wait_seconds = epoch, waited
    for _ in range(2):
        report._warn({}, 10.0)
    assert [r.levelno for r in caplog.records if "the training loop is the bottleneck" in r.getMessage()] == [logging.INFO] * says


def test_sample_changed_while_training(folder, root, tmp_path):
    """The error has the sample and the cause."""
    source = shutil.copytree(folder.root, tmp_path / "source")
    ours = lt.Dataset(source, index, cache=root)
    name = ours.job.names([7])[0]
    (source / name).write_bytes(b"another one")
    with pytest.raises(lcache.SampleError, match="changed since ingest") as raised:
        ours[7]
    assert raised.value.sample == name
    assert ours[8] == 8


def test_source_changed(folder, root, tmp_path, capfd):
    for name in "ab":
        os.makedirs(tmp_path / "src" / name)
        (tmp_path / "src" / name / "1").write_bytes(b"x" * 100)
    with lt.Dataset(tmp_path / "src", cache=root).job as job:
        pid = job.pid

    os.kill(pid, 15)
    wait_for_end(pid)
    (tmp_path / "src" / "a" / "2").write_bytes(b"y" * 100)
    changed = lt.Dataset(tmp_path / "src", cache=root)
    assert len(changed) == 3 and changed[1] == (b"y" * 100, 0)
    assert capfd.readouterr().err.count("has changed since the cache was made") == 1


def test_look_ahead_ends_with_the_job(folder, root, caplog, pushed):
    """Nothing is logged about epochs that the job does not have, unless they are read."""
    caplog.set_level(logging.INFO, "lcache")
    ours = lt.Dataset(folder.root, index, cache=root, epochs=3)
    loader = lt.DataLoader(ours, 16, shuffle=True, seed=1)
    for _ in range(3):
        list(loader)
    assert pushed == [(0, 0), (1, 0), (2, 0)]
    assert [r.getMessage() for r in caplog.records if " · epoch " not in r.getMessage() and "copied to" not in r.getMessage()] == []
    list(loader)
    assert caplog.text.count("refuses the order of epoch 3") == 1
