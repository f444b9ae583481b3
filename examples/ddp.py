"""Data-parallel training on CPUs with gloo, each rank with its part of every epoch, and a checkpoint that goes on at the next batch.

    torchrun --standalone --nproc-per-node 2 ddp.py DATA [--cache ROOT] [--checkpoint FILE] [--stop-after N]

The ranks start at once and share one server. Run again with the same checkpoint, also with another number of ranks, it goes on where
it stopped.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

from lcache.torch import DataLoader, Dataset


def features(data, sample):
    """32 numbers of a file's bytes, its label, and its index."""
    numbers = torch.frombuffer(bytearray(data), dtype=torch.uint8)[:32].float() / 255
    return nn.functional.pad(numbers, (0, 32 - len(numbers))), sample.label, sample.index


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--cache")
    parser.add_argument("--checkpoint", default="")
    parser.add_argument("--stop-after", type=int, default=0, help="batches, to try the checkpoint")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    dataset = Dataset(args.data, features, cache=args.cache)
    loader = DataLoader(dataset, batch_size=8, sampler=DistributedSampler(dataset, seed=1))
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(32, max(1, len(dataset.classes))))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    first = 0
    if args.checkpoint and os.path.exists(args.checkpoint):
        saved = torch.load(args.checkpoint)
        model.load_state_dict(saved["model"])
        loader.load_state_dict(saved["loader"])
        first = saved["loader"]["epoch"]
    done = 0
    for epoch in range(first, args.epochs):
        loader.set_epoch(epoch)
        for inputs, labels, indices in loader:
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"epoch {epoch} rank {dist.get_rank()} indices {indices.tolist()}", flush=True)
            done += 1
            if done == args.stop_after:
                if dist.get_rank() == 0:
                    torch.save({"model": model.state_dict(), "loader": loader.state_dict()}, args.checkpoint)
                dist.barrier()
                dist.destroy_process_group()
                return
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
