#!/usr/bin/env python3
"""Makes cache.tar.gz: a cache as a server leaves it that was stopped in the middle of its second epoch.

    PYTHONPATH=python testdata/cache-v1/make.py bin/lcache

cache.tar.gz was made by the program and the client of commit b02b7b4, and is not made again: it shows that later versions open what that one
wrote. A change of a format gets a directory of its own, made in the same way by the last version before that change.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile

import lcache

SAMPLES, CLASSES, BATCH, WORLD, EPOCHS = 96, 3, 4, 2, 3


def size(i):
    if i % 16 == 5:
        return 0
    if i % 16 == 9:
        return 1
    if i % 16 == 13:
        return (128 << 10) + i
    return 20_000 + i * 7919 % 100_000


def content(i):
    """Bytes that are the sample's own, and can be compressed well. The first byte of every 4096 counts them."""
    unit = f"sample {i:03d} of a cache, version 1\n".encode()
    n = size(i)
    data = bytearray((unit * (n // len(unit) + 1))[:n])
    for k in range(0, n, 4096):
        data[k] = k // 4096
    return bytes(data)


def make_source(path):
    for i in range(SAMPLES):
        folder = path / f"class-{i * CLASSES // SAMPLES}"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{i:03d}.bin"
        file.write_bytes(content(i))
        at = (1_767_225_600 + i) * 10**9  # 2026-01-01, and a second more for each
        os.utime(file, ns=(at, at))


def check(batch):
    for i, data in zip(batch.indices, batch.samples):
        assert bytes(data) == content(i), i


def main(binary):
    out = pathlib.Path(__file__).parent / "cache.tar.gz"
    work = pathlib.Path("/tmp/lcache-cache-v1")  # job.json has it
    work.mkdir()
    try:
        source, cache = work / "source", work / "cache"
        make_source(source)
        memory = ["--memory", "18MiB"]
        subprocess.run([binary, "ingest", "--source", source, "--cache", cache, "--recipe", "torch.distributed_sampler", "--seed", "7", "--epochs", str(EPOCHS),
                        "--batch-size", str(BATCH), "--world-size", str(WORLD), "--budget", "16MiB", *memory, "--progress", "none"], check=True)
        server = subprocess.Popen([binary, "serve", "--cache", cache, *memory], stdout=subprocess.PIPE)
        server.stdout.readline()
        with lcache.connect(cache / "lcache.sock") as job:
            for epoch, batches in (0, None), (1, 2):
                ranks = [job.epoch(epoch, rank=rank) for rank in range(WORLD)]
                for number, step in enumerate(zip(*ranks)):
                    for batch in step:
                        check(batch)
                        batch.release()
                    if number + 1 == batches:
                        break
        server.send_signal(signal.SIGTERM)
        assert server.wait() == 0
        assert all((cache / f"journal-{half}").stat().st_size > 1000 for half in (0, 1)), "only one Logfile holds samples: stop earlier"
        with tarfile.open(out, "w:gz") as tar:
            for file in sorted(cache.iterdir()):
                if file.is_file() and file.name != "LOCK":
                    info = tar.gettarinfo(file, file.name)
                    info.uid = info.gid = info.mtime = 0
                    info.uname = info.gname = ""
                    with open(file, "rb") as f:
                        tar.addfile(info, f)
    finally:
        shutil.rmtree(work)
    print(out, out.stat().st_size)


main(sys.argv[1])
