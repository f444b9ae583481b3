"""A rank of a training on several machines, for tests of the recipes. argv: the dataset, and the number of epochs.

It compares every sample with the file in the source, and ends with an error if one differs or if the epochs' orders are not DistributedSampler's. Rank 0
prints one line an epoch: the samples of all ranks, and the bytes that all servers read from the source in that epoch.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch.utils.data import DistributedSampler

import lcache.torch


def total(number):
    """The sum over all ranks, which also waits for them."""
    tensor = torch.tensor([number])
    dist.all_reduce(tensor)
    return int(tensor)


def source_bytes(dataset):
    """What this machine's server has read from the source, also for other machines. Its first rank counts it."""
    if int(os.environ.get("LOCAL_RANK", os.environ.get("SLURM_LOCALID", "0"))) != 0:
        return 0
    return dataset.job.stats()["totals"]["source_bytes"]


def main():
    root, epochs = sys.argv[1], int(sys.argv[2])
    paths = [os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names]
    paths.sort(key=lambda path: os.path.relpath(path, root).split(os.sep))
    dist.init_process_group("gloo")
    dataset = lcache.torch.Dataset(root, decode=lambda data, sample: (data, sample.index))
    assert len(dataset) == len(paths)
    sampler = DistributedSampler(dataset, seed=5)
    loader = lcache.torch.DataLoader(dataset, batch_size=16, sampler=sampler, collate_fn=list)
    before = 0
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        order, seen = list(sampler), []
        for batch in loader:
            for data, index in batch:
                with open(paths[index], "rb") as f:
                    assert f.read() == data, f"rank {dist.get_rank()}: sample {index} has other bytes than {paths[index]}"
                seen.append(index)
        assert seen == order, f"rank {dist.get_rank()}: another order"
        samples, after = total(len(seen)), total(source_bytes(dataset))
        if dist.get_rank() == 0:
            cluster = dataset.job.stats()["cluster"]
            print(f"epoch {epoch}: {samples} samples, {after - before} bytes from the source, cluster {cluster['state']} of {len(cluster.get('peers', []))}", flush=True)
        before = after
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
