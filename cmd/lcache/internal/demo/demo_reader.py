"""One rank of lcache's demo: reads epochs through the Python client and checks everything against the files themselves.

Nothing here comes from lcache but the bytes under test: the order of the files is torchvision's ImageFolder, written down
again; the order of the samples is torch's DistributedSampler, written down again over CPython's own Mersenne Twister.
The parent writes a request as a line of JSON on stdin; the answer is a line of JSON. The number of an epoch asks for that
epoch, with all checks. {"time": HOW, "epochs": [FIRST, END], "threads": N} asks for epochs that are only timed: HOW is
"lcache", "files" or "cold files".
"""

import argparse
import collections
import concurrent.futures
import json
import os
import random
import sys
import time
import zlib

import lcache

READ_SECONDS = 5  # a timed reading ends after them, even in the middle of an epoch
DROP_SECONDS = 2  # and so does the step before it, which drops files from the page cache


def image_folder(root, endings=()):
    """Paths and labels in the order of torchvision.datasets.ImageFolder, of the files with these endings; () takes all files."""
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    files = []
    for label, name in enumerate(classes):
        for folder, _, names in sorted(os.walk(os.path.join(root, name), followlinks=True)):
            files += [(os.path.join(folder, n), label) for n in sorted(names) if not endings or n.endswith(endings)]
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


def drop(paths, least):
    """Asks the kernel to drop files from the page cache, for DROP_SECONDS, and at least that many files. Returns their number."""
    began = time.monotonic()
    for count, path in enumerate(paths):
        if count >= least and time.monotonic() - began > DROP_SECONDS:
            return count
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    return len(paths)


def plain(paths, threads):
    """Yields the bytes of files in their order. One thread opens, reads and closes each of them, or several threads that read ahead."""
    if threads == 1:
        yield from map(read, paths)
        return
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        ahead = collections.deque()
        for path in paths:
            ahead.append(pool.submit(read, path))
            if len(ahead) == 4 * threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def from_disk():
    """The bytes that this process has read from disks, without those from the page cache; None where the kernel does not say."""
    try:
        with open("/proc/self/io") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("read_bytes:"))
    except (OSError, StopIteration):
        return None


class Rank:
    def __init__(self, arguments):
        self.a = arguments
        self.files = image_folder(arguments.source, tuple(filter(None, arguments.ext.split(","))))
        self.in_memory = len(self.files)  # files of the last cold reading, which left them in the page cache
        self.job = lcache.connect(arguments.socket)
        if self.job.samples != len(self.files):
            raise SystemExit(f"the server has {self.job.samples} samples, the folder {len(self.files)} files")

    def epoch(self, epoch):
        """Reads one epoch and returns its results; `wrong` describes the first few differences."""
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

    def timed(self, how, epochs, threads):
        """Reads epochs and compares no files. `crcs` are the CRC-32 of an epoch's bytes up to the end of each batch: they compare readings."""
        a = self.a
        orders = [distributed_sampler(len(self.files), a.seed, epoch, a.world, a.rank) for epoch in range(*epochs)]
        paths = [self.files[index][0] for order in orders for index in order]
        if how == "cold files":
            paths = paths[: drop(paths, a.batch_size)]
        if how == "files":
            paths = paths[: self.in_memory]
        if how == "lcache":
            samples = (sample for epoch in range(*epochs) for batch in self.job.epoch(epoch, rank=a.rank) for sample in batch.samples)
        else:
            samples = plain(paths, threads)
        crc, crcs, at, count, size, disk = 0, [], 0, 0, 0, from_disk()
        began = time.monotonic()
        for sample in samples:
            crc = zlib.crc32(sample, crc)
            at, count, size = at + 1, count + 1, size + len(sample)
            last = at == len(orders[0])
            if last or at % a.batch_size == 0:
                crcs.append(crc)
                if time.monotonic() - began > READ_SECONDS:
                    break
            if last:
                crc, at = 0, 0
        seconds = time.monotonic() - began
        disk = None if disk is None else from_disk() - disk
        samples.close()
        if how == "cold files":
            self.in_memory = count
        return {"samples": count, "bytes": size, "seconds": seconds, "disk": disk, "crcs": crcs}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--ext", default="")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    rank = Rank(parser.parse_args())
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        answer = rank.epoch(request) if isinstance(request, int) else rank.timed(request["time"], request["epochs"], request["threads"])
        print(json.dumps(answer), flush=True)
    rank.job.close()


if __name__ == "__main__":
    main()
