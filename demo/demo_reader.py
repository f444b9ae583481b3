"""One rank of lcache's demo: reads epochs through the Python client and checks everything against the files themselves.

Nothing here comes from lcache but the bytes under test: the order of the files is torchvision's ImageFolder, written down
again; the order of the samples is torch's DistributedSampler, written down again over CPython's own Mersenne Twister.
The parent writes an epoch's number a line on stdin; the answer is a line of JSON.
"""

import argparse
import json
import os
import random
import sys
import time

import lcache


def image_folder(root):
    """Paths and labels in the order of torchvision.datasets.ImageFolder, without its filter by extension."""
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    files = []
    for label, name in enumerate(classes):
        for folder, _, names in sorted(os.walk(os.path.join(root, name), followlinks=True)):
            files += [(os.path.join(folder, n), label) for n in sorted(names)]
    return files


def mersenne_twister(seed):
    """torch's CPU generator: MT19937 seeded by the low 32 bits."""
    state = [seed & 0xFFFFFFFF]
    for j in range(1, 624):
        state.append((1812433253 * (state[-1] ^ (state[-1] >> 30)) + j) & 0xFFFFFFFF)
    generator = random.Random()
    generator.setstate((3, tuple(state) + (624,), None))
    return generator


def distributed_sampler(n, seed, epoch, world, rank):
    """The indices of one rank: torch.randperm, padded from its own start, dealt in turn."""
    generator = mersenne_twister(seed + epoch)
    order = list(range(n))
    for i in range(n - 1):
        j = i + generator.getrandbits(32) % (n - i)
        order[i], order[j] = order[j], order[i]
    each = -(-n // world)
    return [order[(rank + k * world) % n] for k in range(each)]


def read(path):
    with open(path, "rb") as f:
        return f.read()


class Rank:
    def __init__(self, arguments):
        self.a = arguments
        self.files = image_folder(arguments.source)
        self.job = lcache.connect(arguments.socket)
        if self.job.samples != len(self.files):
            raise SystemExit(f"the server has {self.job.samples} samples, the folder {len(self.files)} files")

    def epoch(self, epoch):
        """Reads one epoch and returns what was seen; `wrong` holds the first few differences, in words."""
        a = self.a
        order = distributed_sampler(len(self.files), a.seed, epoch, a.world, a.rank)
        wrong, at, size = [], 0, 0
        began = time.monotonic()
        for number, batch in enumerate(self.job.epoch(epoch, rank=a.rank)):
            expected = order[at : at + a.batch_size]
            if list(batch.indices) != expected:
                wrong.append(f"epoch {epoch} rank {a.rank} batch {number}: another order than DistributedSampler's")
            for index, label, sample in zip(batch.indices, batch.labels, batch.samples):
                path, right = self.files[index]
                if bytes(sample) != read(path):
                    wrong.append(f"epoch {epoch} rank {a.rank} batch {number}: other bytes than {path}")
                if label != right:
                    wrong.append(f"epoch {epoch} rank {a.rank} batch {number}: label {label}, not {right}, for {path}")
                size += len(sample)
            at += len(expected)
        if at != len(order):
            wrong.append(f"epoch {epoch} rank {a.rank}: {at} samples instead of {len(order)}")
        seconds = time.monotonic() - began
        return {"epoch": epoch, "rank": a.rank, "samples": at, "bytes": size, "seconds": seconds, "wrong": wrong[:5], "wrongs": len(wrong)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    rank = Rank(parser.parse_args())
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(rank.epoch(int(line))), flush=True)
    rank.job.close()


if __name__ == "__main__":
    main()
