"""Loops that never request one more batch than an epoch has: Lightning's, a loop with a number of steps, a repeated batch sampler.

With torch the later epochs then depend on the number of workers. With lcache they are those after whole epochs, as lcache order prints them.
"""

import json
import logging
import subprocess

import pytest
import realserver
from embedded_servers import folder, root  # noqa: F401

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)

import lcache.torch as lt  # noqa: E402

SIZE, EPOCHS = 16, 3  # the size divides the number of samples


def index(_, sample):
    return sample.index


class Repeated:
    """Like the batch sampler of ultralytics' and timm's loaders."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        while True:
            yield from iter(self.sampler)


def repeated(loader):
    count = len(loader)
    object.__setattr__(loader, "batch_sampler", Repeated(loader.batch_sampler))
    iterator = iter(loader)
    for _ in range(EPOCHS):
        yield [next(iterator).tolist() for _ in range(count)]


def counted(loader):
    for _ in range(EPOCHS):
        iterator = iter(loader)
        yield [next(iterator).tolist() for _ in range(len(loader))]
        del iterator


def printed(epoch, samples):
    """The order as lcache order prints it."""
    words = ["order", "--recipe", "torch.dataloader", "--param", "generator=explicit", "--seed", "1", "--samples", str(samples), "--epoch", str(epoch), "--json"]
    return json.loads(subprocess.run([realserver.BINARY, *words], stdout=subprocess.PIPE, check=True).stdout)["order"]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("loop", [counted, repeated])
def test_orders_of_whole_epochs(folder, root, caplog, loop, workers):
    caplog.set_level(logging.INFO, "lcache")
    loader = lt.DataLoader(lt.Dataset(folder.root, index, cache=root), SIZE, shuffle=True, generator=torch.Generator().manual_seed(1), num_workers=workers)
    found = [[i for batch in epoch for i in batch] for epoch in loop(loader)]
    assert found == [printed(epoch, len(folder)) for epoch in range(EPOCHS)]
    assert [r.levelname for r in caplog.records if "without requesting one more" in r.message] == ["INFO"]


@pytest.mark.parametrize("broken_off", [1, None])
def test_other_loops_log_nothing(folder, root, caplog, broken_off):
    caplog.set_level(logging.INFO, "lcache")
    loader = lt.DataLoader(lt.Dataset(folder.root, index, cache=root), SIZE, shuffle=True, seed=1)
    for _ in range(EPOCHS):
        for number, _ in enumerate(loader, 1):
            if number == broken_off:
                break
    assert "without requesting one more" not in caplog.text


def test_lightning_gets_a_line_an_epoch(folder, root, caplog):
    """Lightning's loop counts batches. The log lines of training and of validation still appear, each with the name of its dataset."""
    lightning = pytest.importorskip("lightning", reason="lightning is not installed")
    caplog.set_level(logging.INFO, "lcache")

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch, _):
            return self.layer(batch.float()[:, None]).mean()

        def validation_step(self, batch, _):
            pass

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.0)

    dataset = lt.Dataset(folder.root, index, cache=root)
    loader = lt.DataLoader(dataset, SIZE, shuffle=True, seed=1)
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0
    )
    trainer.fit(Model(), loader, lt.DataLoader(dataset, SIZE))
    lines = [r.getMessage().partition(":")[0].partition(" ·")[2] for r in caplog.records if "loop waited" in r.getMessage()]
    assert lines == [" epoch 0", " epoch 0", " epoch 1", " epoch 1"]
