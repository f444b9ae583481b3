"""Trains with Lightning in two processes that it spawns, with lcache and with a plain list in parallel.

spawn_run.py FOLDER ROOT OUT. OUT-<rank> gets JSON: epochs of [indices from lcache, indices from the list] for each batch, and the server's status.
The loaders have no generator of their own, because torch can't pass one to a spawned process.
"""

import json
import sys

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.utilities import CombinedLoader

import lcache.torch as lt

SIZE, EPOCHS, SEED, WORLD = 16, 3, 13, 2


def index(_, sample):
    return sample.index


class Model(LightningModule):
    def __init__(self, dataset, out):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.dataset, self.out = dataset, out
        self.seen = [[] for _ in range(EPOCHS)]

    def training_step(self, batch, _):
        self.seen[self.current_epoch].append([part.tolist() for part in batch])
        return self.weight.sum()

    def on_train_end(self):
        with open(f"{self.out}-{self.global_rank}", "w") as f:
            json.dump({"seen": self.seen, "status": self.dataset.job.stats()["jobs"][0]}, f)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-3)


def main(folder, root, out):
    ours = lt.Dataset(folder, index, cache=root)
    plain = torch.utils.data.DataLoader(list(range(len(ours))), SIZE, shuffle=True)
    seed_everything(SEED)
    quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    both = CombinedLoader([lt.DataLoader(ours, SIZE, shuffle=True, seed=SEED), plain], "max_size_cycle")
    Trainer(accelerator="cpu", devices=WORLD, strategy="ddp_spawn", max_epochs=EPOCHS, **quiet).fit(Model(ours, out), both)


if __name__ == "__main__":
    main(*sys.argv[1:])
