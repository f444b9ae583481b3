"""Trains on two processes with Lightning's Trainer or Fabric; each process writes the indices that it got.

Run by test_lightning.py: lightning_run.py FOLDER N BATCH_SIZE SEED SHUFFLE. It is a separate process, because the strategies fork.
"""

import os
import sys

import torch
from lightning.fabric import Fabric
from lightning.pytorch import LightningModule, Trainer, seed_everything


def note(folder, kind, epoch, rank, batch):
    with open(os.path.join(folder, f"{kind}-{epoch}-{rank}"), "a") as f:
        f.writelines(f"{i}\n" for i in batch.tolist())


class Model(LightningModule):
    def __init__(self, folder):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.folder = folder

    def training_step(self, batch, number):
        note(self.folder, "trainer", self.current_epoch, self.global_rank, batch)
        return self.weight.sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-3)


def loop(fabric, folder, n, batch_size, shuffle):
    loader = fabric.setup_dataloaders(torch.utils.data.DataLoader(range(n), batch_size=batch_size, shuffle=shuffle))
    for epoch in range(2):
        for batch in loader:
            note(folder, "fabric", epoch, fabric.global_rank, batch)


def main(folder, n, batch_size, seed, shuffle):
    n, batch_size, shuffle = int(n), int(batch_size), shuffle == "true"
    seed_everything(int(seed))
    quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer = Trainer(accelerator="cpu", devices=2, strategy="ddp_fork", max_epochs=2, default_root_dir=folder, **quiet)
    trainer.fit(Model(folder), torch.utils.data.DataLoader(range(n), batch_size=batch_size, shuffle=shuffle))
    Fabric(accelerator="cpu", devices=2, strategy="ddp_fork").launch(loop, folder, n, batch_size, shuffle)


if __name__ == "__main__":
    main(*sys.argv[1:])
