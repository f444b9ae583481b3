"""Iterates over a dataset with each framework, once with lcache and once with a plain list, and prints the indices that each process got.

frameworks_run.py FOLDER ROOT OUT FRAMEWORK…, as one process or as ranks that torchrun's variables make. OUT-<rank> gets JSON: {framework: {"lcache": epochs, "plain": epochs}}
with each epoch a list of batches.
"""

import json
import logging
import os
import sys

import torch
import torch.distributed as dist
from torch.utils import data

import lcache.torch as lt

SIZE, EPOCHS, SEED = 16, 3, 13
WORLD, RANK = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))


def index(_, sample):
    return sample.index


def loader(dataset, size=SIZE, **more):
    """A user's loader: lcache's for lcache's dataset, torch's for any other."""
    kind = lt.DataLoader if isinstance(dataset, lt.Dataset) else data.DataLoader
    return kind(dataset, size, **more)


def plain_torch(dataset):
    sampler = data.DistributedSampler(dataset, WORLD, RANK, seed=SEED)
    batches = loader(dataset, sampler=sampler)
    epochs = []
    for epoch in range(EPOCHS):
        batches.set_epoch(epoch) if hasattr(batches, "set_epoch") else sampler.set_epoch(epoch)
        epochs.append([batch.tolist() for batch in batches])
    return epochs


def accelerate_(seedable=False, watched=False, split=False, even=True):
    def run(dataset):
        from accelerate import Accelerator, DataLoaderConfiguration

        torch.manual_seed(SEED)
        accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=seedable, split_batches=split, even_batches=even))
        # Each process drops its own base seeds; the order comes from rank 0's generator.
        size = SIZE if even else SIZE + 6  # the last batch is short, and there is one batch too many
        batches = accelerator.prepare(loader(dataset, size, shuffle=True, generator=torch.Generator().manual_seed(SEED)))
        if watched and isinstance(dataset, lt.Dataset):
            batches = lt.watch(batches)
        return [[batch.tolist() for batch in batches] for _ in range(EPOCHS)]

    return run


def lightning(dataset):
    from lightning.pytorch import LightningModule, Trainer, seed_everything

    seen = [[] for _ in range(EPOCHS)]

    class Model(LightningModule):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def training_step(self, batch, _):
            seen[self.current_epoch].append(batch.tolist())
            return self.weight.sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 1e-3)

    seed_everything(SEED)
    quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    batches = loader(dataset, shuffle=True, generator=torch.Generator().manual_seed(SEED))
    strategy = "ddp" if WORLD > 1 else "auto"
    Trainer(accelerator="cpu", devices=WORLD, strategy=strategy, max_epochs=EPOCHS, **quiet).fit(Model(), batches)
    return seen


def drained(dataset):
    """torch's own order. Lightning on one device does not read to the end of an epoch whose length it knows, so the generator has not
    advanced as far as after a whole epoch. lcache's orders don't depend on that."""
    batches = loader(dataset, shuffle=True, generator=torch.Generator().manual_seed(SEED))
    return [[batch.tolist() for batch in batches] for _ in range(EPOCHS)]


FRAMEWORKS = {
    "torch": plain_torch,
    "accelerate": accelerate_(),
    "accelerate, seedable": accelerate_(seedable=True),
    "accelerate, watched": accelerate_(seedable=True, watched=True),
    "accelerate, split": accelerate_(split=True),
    "accelerate, uneven": accelerate_(even=False),
    "accelerate, uneven split": accelerate_(even=False, split=True),
    "lightning": lightning,
}


def main(folder, root, out, *names):
    logging.basicConfig(level=logging.WARNING)
    if WORLD > 1:
        dist.init_process_group("gloo")
    results = {}
    for name in names:
        ours = lt.Dataset(folder, index, cache=os.path.join(root, name.replace(", ", "-")))
        plain = drained if name == "lightning" and WORLD == 1 else FRAMEWORKS[name]
        results[name] = {"lcache": FRAMEWORKS[name](ours), "plain": plain(list(range(len(ours))))}
        if WORLD > 1 and dist.is_initialized():
            dist.barrier()
        results[name]["status"] = ours.job.stats()["jobs"][0]
    print("without a sampler", file=sys.stderr, flush=True)
    batches = loader(lt.Dataset(folder, index, cache=os.path.join(root, "torch")), shuffle=True, seed=1)
    for _ in range(2):
        list(batches)
    with open(f"{out}-{RANK}", "w") as f:
        json.dump(results, f)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
