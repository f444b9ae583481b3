"""loader.metrics() before, during and after epochs, with workers and without a server that answers, and in the logs of Lightning and transformers."""

import copy
import csv
import importlib.util
import json
import os
import pickle
import signal
import subprocess
import sys
import time

import pytest
from embedded_servers import folder, root  # noqa: F401
from test_ownership import fill
from waits import until

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)

from torch.utils import data  # noqa: E402

import lcache.torch as lt  # noqa: E402
from lcache._client import status_poll  # noqa: E402
from lcache._client.link import Link  # noqa: E402
from lcache.torch import callbacks  # noqa: E402

LOCAL = {"epoch", "batch", "wait_share", "wait_seconds", "batches_per_s", "samples_per_s"}
OF_SERVER = {"mb_per_s", "hit_share", "ready_share", "source_mb"}


def index(_, sample):
    return sample.index


def keys(*names):
    return {f"lcache/{name}" for name in names}


@pytest.fixture
def fresh(monkeypatch):
    """Each call has the server's numbers of that moment."""
    monkeypatch.setattr(status_poll, "_EVERY", 0.0)
    monkeypatch.setattr(status_poll, "_PATIENCE", 10.0)


@pytest.mark.parametrize("workers", [0, 2])
def test_metrics(folder, root, workers, fresh):
    loader = lt.DataLoader(lt.Dataset(folder.root, index, cache=root), 16, shuffle=True, seed=1, num_workers=workers)
    assert loader.metrics() == {}
    logged = []
    for epoch in range(20):
        for count, _ in enumerate(loader, 1):
            found = loader.metrics()
            assert set(found) == keys(*LOCAL, *OF_SERVER) and json.dumps(found, allow_nan=False)
            assert (found["lcache/epoch"], found["lcache/batch"]) == (epoch, count)
            logged.append(found)
        between = loader.metrics()
        assert (between["lcache/epoch"], between["lcache/batch"]) == (epoch, 15), "between two epochs it has the one that ended"
        begun = iter(loader) if not workers else None  # workers would request its first batches
        assert loader.metrics()["lcache/batch"] == 15, "and until the next one's first batch"
        del begun
        if epoch > 0 and logged[-1]["lcache/hit_share"] == 1:
            break  # the log has all samples, which may take longer than an epoch of milliseconds
    first, last = logged[14], logged[-1]
    assert first["lcache/hit_share"] == 0 and folder.bytes <= first["lcache/source_mb"] * 1e6 < 1.5 * folder.bytes
    assert last["lcache/hit_share"] == 1 and last["lcache/source_mb"] == 0
    for found in logged:
        assert 0 <= found["lcache/wait_share"] <= 1 and 0 <= found["lcache/ready_share"] <= 1
    assert last["lcache/mb_per_s"] == pytest.approx(last["lcache/samples_per_s"] * folder.bytes / len(folder) / 1e6, rel=0.01)
    assert last["lcache/samples_per_s"] == pytest.approx(last["lcache/batches_per_s"] * 16, rel=1e-6)


def test_server_that_does_not_answer(folder, root):
    """The server stops for a while: a call waits once, a tenth of a second, and later calls do not. The server's numbers come back when it goes on."""
    loader = lt.DataLoader(lt.Dataset(folder.root, index, cache=root), 16)
    list(loader)
    until(lambda: "lcache/hit_share" in loader.metrics(), "the server's numbers")
    pid, poll = loader.dataset.job.pid, loader.batch_sampler.order_ahead.jobs[0]._poll
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: all(is_stopped(pid, thread) for thread in os.listdir(f"/proc/{pid}/task")), "all threads stopped")
        poll._sent = poll._received = float("-inf")  # as if the last answer were old
        began = time.monotonic()
        for _ in range(20):
            assert set(loader.metrics()) == keys(*LOCAL)
        assert time.monotonic() - began < 5
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: "lcache/hit_share" in loader.metrics(), "the server's numbers")


def is_stopped(pid, thread):
    with open(f"/proc/{pid}/task/{thread}/stat") as f:
        return f.read().rpartition(") ")[2].startswith("T")


def test_server_that_is_gone(folder, root):
    loader = lt.DataLoader(lt.Dataset(folder.root, index, cache=root), 16)
    list(loader)
    os.kill(loader.dataset.job.pid, signal.SIGKILL)
    loader.batch_sampler.order_ahead.jobs[0]._poll._received = float("-inf")
    until(lambda: set(loader.metrics()) == keys(*LOCAL), "metrics without the server's")
    list(loader)  # another server
    until(lambda: "lcache/hit_share" in loader.metrics(), "the server's numbers")
    loader.dataset.job.close()
    assert loader.metrics()["lcache/epoch"] == 1


def test_cost(folder, root, monkeypatch):
    """A call at each step is cheap: one status a second, and arithmetic."""
    loader = lt.DataLoader(lt.Dataset(folder.root, index, cache=root), 16)
    list(loader)
    requests, send = [], Link.send_early
    monkeypatch.setattr(Link, "send_early", lambda link, request: (requests.append(request), send(link, request)))
    began = time.monotonic()
    for _ in range(1000):
        loader.metrics()
    assert len(requests) <= 2 + (time.monotonic() - began)


def test_other_loaders(folder, root):
    ours = lt.Dataset(folder.root, index, cache=root)
    half = lt.watch(data.DataLoader(data.Subset(ours, range(100)), 10, shuffle=True))
    list(half)
    assert half.metrics()["lcache/batch"] == 10
    both = lt.DataLoader(data.ConcatDataset([ours, lt.Dataset(folder.root, index, cache=root)]), 32)
    list(both)
    assert keys(*LOCAL) <= set(both.metrics())
    foreign = lt.DataLoader(list(range(100)), 10)
    list(foreign)
    assert set(foreign.metrics()) == keys(*LOCAL)

    class Stream(data.IterableDataset):
        def __iter__(self):
            return iter(range(30))

    stream = lt.DataLoader(Stream(), 10)
    list(stream)
    assert stream.metrics()["lcache/batch"] == 3
    assert pickle.loads(pickle.dumps(half)).metrics() == copy.deepcopy(half).metrics() == {}


def test_callbacks_without_their_frameworks():
    """The module needs neither framework. A class whose framework is not installed raises ModuleNotFoundError."""
    program = "import sys; sys.modules.update({'lightning': None, 'pytorch_lightning': None, 'transformers': None})\nimport lcache.torch.callbacks as c\n"
    program += "for name in 'LightningMetrics', 'TrainerMetrics':\n try: getattr(c, name)\n except ModuleNotFoundError as e: print(e.name)"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env, timeout=120)
    assert done.returncode == 0 and len(done.stdout.split()) == 2, done.stderr
    with pytest.raises(AttributeError):
        callbacks.Nothing
    assert callbacks.metrics_of(data.DataLoader([1])) == {} and callbacks.metrics_of(None) == {}


@pytest.mark.skipif(importlib.util.find_spec("lightning") is None, reason="lightning is not installed")
def test_lightning(folder, root, tmp_path, fresh):
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.loggers import CSVLogger

    class Model(LightningModule):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def training_step(self, batch, _):
            return self.weight.sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 1e-3)

    callback = callbacks.LightningMetrics()
    assert isinstance(pickle.loads(pickle.dumps(callback)), callbacks.LightningMetrics)
    dataset = lt.Dataset(folder.root, index, cache=root)
    fill(dataset, lt.DataLoader(dataset, 16, shuffle=True, seed=2))
    loader = lt.DataLoader(dataset, 16, shuffle=True, seed=1)
    logger = CSVLogger(str(tmp_path))
    quiet = dict(enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    Trainer(accelerator="cpu", devices=1, max_epochs=2, logger=logger, log_every_n_steps=5, callbacks=[callback], **quiet).fit(Model(), loader)
    logger.save()
    with open(os.path.join(logger.log_dir, "metrics.csv"), newline="") as f:
        rows = list(csv.DictReader(f))
    assert [row["step"] for row in rows] == ["5", "10", "15", "20", "25", "30"]
    assert [float(row["lcache/epoch"]) for row in rows] == [0, 0, 0, 1, 1, 1] and float(rows[-1]["lcache/hit_share"]) == 1


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None or importlib.util.find_spec("accelerate") is None, reason="transformers is not installed")
def test_transformers(folder, root, tmp_path, fresh):
    from transformers import Trainer, TrainerCallback, TrainingArguments

    reported = []

    class Reporter(TrainerCallback):
        """Stands where the callbacks of wandb and others stand: in front of a program's own."""

        def on_log(self, args, state, control, logs=None, **_):
            reported.append(dict(logs))

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def forward(self, index):
            return {"loss": self.layer(index[:, None].float()).mean()}

    class CachedTrainer(Trainer):
        def get_train_dataloader(self):
            return lt.watch(super().get_train_dataloader())

    arguments = TrainingArguments(str(tmp_path), num_train_epochs=2, per_device_train_batch_size=16, logging_steps=5, use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True)
    whole = lt.Dataset(folder.root, index, cache=root)
    fill(whole, lt.DataLoader(whole, 16, shuffle=True, seed=2))
    dataset = lt.Dataset(folder.root, lambda _, sample: {"index": sample.index}, cache=root)
    trainer = CachedTrainer(Model(), arguments, train_dataset=dataset, callbacks=[Reporter()])
    trainer.callback_handler.callbacks.insert(0, callbacks.TrainerMetrics())
    trainer.train()
    rows = [row for row in reported if "loss" in row]
    assert len(rows) == 6 and all(keys(*LOCAL) <= set(row) for row in rows)
    assert [row["lcache/epoch"] for row in rows] == [0, 0, 0, 1, 1, 1] and rows[-1]["lcache/hit_share"] == 1
    assert "lcache/wait_share" in trainer.state.log_history[0]
