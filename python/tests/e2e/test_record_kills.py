"""Kills over records in larger files: the next ingest continues, and a restarted server serves the right bytes. The samples that were written are the oracle.

LCACHE_KILLS is the number of kills of each kind of file; without it, only Arrow is tested, with 6. LCACHE_SEED is the seed.
"""

import itertools
import json
import os
import random
import struct
import zipfile

import pytest
import test_restarts

BLOCK = 4096
KINDS = ["arrow", "parquet", "tfrecord", "megatron", "jsonl", "bin", "npy", "zip", "ranges"] if "LCACHE_KILLS" in os.environ else ["arrow"]
KILLS = int(os.environ.get("LCACHE_KILLS", "6"))
SHARDS = 4


class Records:
    """A dataset in four files of one kind, with what a realserver.Folder has."""

    def __init__(self, folder, kind):
        draw = random.Random(9)
        sizes = [0, 1, 3 * BLOCK, *(draw.randrange(20_000) for _ in range(597))] if kind not in ("bin", "npy") else [5000] * 600
        self.contents = [draw.randbytes(size) for size in sizes]
        if kind == "jsonl":
            self.contents = [json.dumps({"text": content.hex()}).encode() for content in self.contents]
        ends = {"megatron": "bin"}
        self.files = []
        for shard in range(SHARDS):
            part = self.contents[150 * shard : 150 * (shard + 1)]
            path = os.path.join(folder, f"part-{shard}.{ends.get(kind, kind)}")
            WRITERS[kind](path, part)
            self.files += [(f"{path}/{row}", 0) for row in range(len(part))]
        self.root = f"{kind}:{folder}/part-{{0..3}}" + ("" if kind == "megatron" else f".{kind}")
        if kind == "ranges":
            self.root = f"ranges:{folder}/index.tsv"
        self.labels = [0] * len(self.contents)
        self.bytes = sum(map(len, self.contents))
        self.flags = ["--record-bytes", "5000"] if kind == "bin" else []

    def __len__(self):
        return len(self.contents)


def arrow(path, samples):
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"data": pyarrow.array(samples, pyarrow.binary())})
    with pyarrow.OSFile(path, "wb") as f, pyarrow.ipc.new_stream(f, table.schema) as writer:
        writer.write_table(table, max_chunksize=40)


def parquet(path, samples):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet as library

    table = pyarrow.table({"data": pyarrow.array(samples, pyarrow.binary())})
    library.write_table(table, path, compression="NONE", use_dictionary=False, row_group_size=40)


def masked(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CASTAGNOLI[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _castagnoli(n):
    for _ in range(8):
        n = n >> 1 ^ 0x82F63B78 * (n & 1)
    return n


CASTAGNOLI = [_castagnoli(n) for n in range(256)]


def tfrecord(path, samples):
    with open(path, "wb") as f:
        for data in samples:
            head = struct.pack("<Q", len(data))
            f.write(head + struct.pack("<I", masked(head)) + data + struct.pack("<I", masked(data)))


def megatron(path, samples):
    starts = list(itertools.accumulate(map(len, samples), initial=0))
    with open(path, "wb") as data, open(path[: -len("bin")] + "idx", "wb") as index:
        data.write(b"".join(samples))
        index.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 1, len(samples), 2))
        index.write(struct.pack(f"<{len(samples)}i", *map(len, samples)) + struct.pack(f"<{len(samples)}q", *starts[:-1]) + struct.pack("<2q", 0, len(samples)))


def jsonl(path, samples):
    with open(path, "wb") as f:
        f.write(b"\n".join(samples) + b"\n")


def windows(path, samples):
    with open(path, "wb") as f:
        f.write(b"".join(samples))


def rows(path, samples):
    numpy = pytest.importorskip("numpy")
    numpy.save(path, numpy.frombuffer(b"".join(samples), numpy.uint8).reshape(len(samples), -1))


def ranges(path, samples):
    """A file of samples, and its lines of the one index of all files."""
    with open(path, "wb") as f:
        f.write(b"".join(samples))
    starts = itertools.accumulate(map(len, samples), initial=0)
    with open(os.path.join(os.path.dirname(path), "index.tsv"), "a") as f:
        if f.tell() == 0:
            f.write("shard\toffset\tlength\n")
        f.writelines(f"{os.path.basename(path)}\t{start}\t{len(data)}\n" for start, data in zip(starts, samples))


def archive(path, samples):
    with zipfile.ZipFile(path, "w") as z:
        for row, data in enumerate(samples):
            z.writestr(f"{row:05d}.jpg", data)


WRITERS = {"arrow": arrow, "parquet": parquet, "tfrecord": tfrecord, "megatron": megatron, "jsonl": jsonl, "bin": windows, "npy": rows, "zip": archive, "ranges": ranges}


@pytest.fixture(params=KINDS)
def records(request, source_dir):
    return Records(source_dir(), request.param)


def test_kills_of_ingest(prepare, records, draw, monkeypatch):
    """As for folders: in the end all samples are there, once, and verified."""
    monkeypatch.setattr(test_restarts, "KILLS", KILLS)
    test_restarts.test_kills_of_ingest(lambda folder, **job: prepare(folder, extra=folder.flags, **job), records, draw)


def test_kills_of_the_server(prepare, records, draw):
    """The server is killed at random batches, while it reorders. The next one has the right bytes, in the same order, and every epoch is whole."""
    cache = prepare(records, epochs=10_000, batch_size=8, extra=records.flags)
    cache.start()
    size = len(cache.batches(0, 0))
    epoch = 0
    for _ in range(KILLS):
        with cache.connect() as job:
            cache.read(job, epoch, 0)
            cache.read(job, epoch + 1, 0, stop=draw.randrange(1, size))
            cache.kill()
        cache.start()
        with cache.connect() as job:
            cache.read(job, epoch + 1, 0)
        epoch += 2
        status = cache.job()
        assert (status["corrupt_samples"], status["divergences"]) == (0, 0)
    cache.stop()
    report = cache.verify()
    assert (report["corrupt"], report["different"]) == (0, 0)
