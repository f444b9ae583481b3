"""The processes that bench-records measures: loops over lcache, Hugging Face datasets, Lance and numpy.memmap, and the process that writes their sets.

Each prints lines of JSON, is ready with the first one, and begins when a line comes on stdin, as the processes of bench-runs do. Each checks every sample:
it holds its own number at both ends, and an epoch must have each sample once.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.dont_write_bytecode = True
from bench_runs.roles import THREADS, Count, number_of, ready, say  # noqa: E402

SHARDS = 8  # files of a set
ROWS = 1000  # of a record batch in Arrow, of a row group in Parquet: 16 MB and 100 MB


def sample(pool: bytes, number: int, size: int) -> bytes:
    at = number * 7919 % (len(pool) - size)
    return number.to_bytes(4, "little") + pool[at : at + size - 8] + (number ^ 0xFFFFFFFF).to_bytes(4, "little")


def write(o: dict[str, Any]) -> None:
    """Writes the set as save_to_disk does, as Parquet, and for Lance; or as one file of tokens."""
    size, samples, folder = o["size"], o["samples"], Path(o["folder"])
    pool = random.Random(size).randbytes(1 << 22)
    if o["tokens"]:
        with (folder / "tokens.bin").open("wb") as f:
            for number in range(samples):
                f.write(sample(pool, number, size))
        return
    import datasets
    import lance
    import pyarrow.compute

    features = datasets.Features({"image": datasets.Image(decode=False), "label": datasets.ClassLabel(num_classes=1000)})

    def rows() -> Iterator[dict[str, Any]]:
        for number in range(samples):
            yield {"image": {"bytes": sample(pool, number, size), "path": f"{number:07d}.jpg"}, "label": number % 1000}

    made = datasets.Dataset.from_generator(rows, features=features, cache_dir=str(folder / "made"), writer_batch_size=ROWS)
    made.save_to_disk(str(folder / "arrow"), num_shards=SHARDS)
    (folder / "parquet").mkdir()
    for k in range(SHARDS):
        made.shard(SHARDS, k, contiguous=True).to_parquet(str(folder / "parquet" / f"train-{k:05d}-of-{SHARDS:05d}.parquet"), batch_size=ROWS)
    image = made.data.table.column("image")
    flat = pyarrow.table({"image": pyarrow.compute.struct_field(image, "bytes"), "label": made.data.table.column("label")})
    lance.write_dataset(flat, str(folder / "lance"), max_rows_per_file=-(-samples // SHARDS))


def loop(o: dict[str, Any], epochs: Iterable[Iterable[list[int]]]) -> None:
    """Takes epochs, which are batches of the numbers of samples."""
    ready()
    for number, batches in enumerate(epochs):
        count = Count(o["samples"], o["size"])
        for numbers in batches:
            count.take(numbers)
        count.end(number)


def lcache(o: dict[str, Any]) -> None:
    """The two changed lines: a dataset and a loader of lcache.torch. Tokens come as one tensor for each batch."""
    from lcache.torch import DataLoader, Dataset  # type: ignore[import-not-found]

    size = o["size"]
    if o["tokens"]:
        dataset = Dataset(o["source"], cache=o["cache"], decode="array", dtype="uint16", shape=(size // 2,))
        loader = DataLoader(dataset, batch_size=o["batch_size"], shuffle=True, seed=o["seed"])
        loop(o, ((numbers_of(batch.numpy()) for batch in loader) for _ in range(o["epochs"])))
    else:
        dataset = Dataset(o["source"], cache=o["cache"])
        loader = DataLoader(
            dataset, batch_size=o["batch_size"], shuffle=True, seed=o["seed"], collate_fn=lambda items: [number_of(data, size) for data, _ in items]
        )
        loop(o, (loader for _ in range(o["epochs"])))
    job = dataset.job.stats()["jobs"][0]
    say(kind="status", **{k: job[k] for k in ("layout", "divergences", "source_bytes")})
    dataset.job.close()


def numbers_of(batch: Any) -> list[int]:
    """The numbers of a batch of token records, whose first and last four bytes must agree."""
    ends = batch[:, [0, 1, -2, -1]].astype("<u2", order="C").view("<u4")
    if (ends[:, 0] != ~ends[:, 1]).any():
        raise ValueError("a batch has a record that is none of the set")
    return list(map(int, ends[:, 0]))


def mapped(o: dict[str, Any]) -> None:
    """datasets, map-style: torch's loader with workers."""
    import datasets
    import torch.utils.data

    size = o["size"]
    loader = torch.utils.data.DataLoader(
        datasets.load_from_disk(o["source"]), batch_size=o["batch_size"], shuffle=True, num_workers=o["workers"],
        generator=torch.Generator().manual_seed(o["seed"]), collate_fn=lambda rows: [number_of(row["image"]["bytes"], size) for row in rows],
    )  # fmt: skip
    loop(o, [loader])


def threads(o: dict[str, Any]) -> None:
    """datasets, map-style: 32 threads that read rows in a random order, some batches ahead of the loop."""
    import datasets

    rows, order = datasets.load_from_disk(o["source"]), list(range(o["samples"]))
    random.Random(o["seed"]).shuffle(order)
    with ThreadPoolExecutor(THREADS) as pool:
        loop(o, [in_advance(pool, order, 1, 256, lambda part: [number_of(rows[part[0]]["image"]["bytes"], o["size"])])])


def in_advance(pool: ThreadPoolExecutor, order: list[int], part: int, ahead: int, read: Any) -> Iterator[list[int]]:
    """The results of read(part of the order), in order, with so many of them in flight."""
    parts = (order[k : k + part] for k in range(0, len(order), part))
    flight = [pool.submit(read, p) for _, p in zip(range(ahead), parts)]
    while flight:
        yield flight.pop(0).result()
        flight += [pool.submit(read, p) for _, p in zip(range(1), parts)]  # range first: zip takes no part too many


def iterable(o: dict[str, Any]) -> None:
    """datasets, iterable: a shuffle of the files and a buffer of rows in each worker."""
    import datasets
    import torch.utils.data

    if o["parquet"]:
        rows = datasets.load_dataset("parquet", data_files=o["source"] + "/*.parquet", split="train", streaming=True)
        rows = rows.cast_column("image", datasets.Image(decode=False))
    else:
        rows = datasets.load_from_disk(o["source"]).to_iterable_dataset(num_shards=16 * o["workers"])
    size = o["size"]
    loader = torch.utils.data.DataLoader(
        rows.shuffle(seed=o["seed"], buffer_size=o["buffer"]), batch_size=o["batch_size"], num_workers=o["workers"],
        collate_fn=lambda rows: [number_of(row["image"]["bytes"], size) for row in rows],
    )  # fmt: skip
    loop(o, [loader])


def lance(o: dict[str, Any]) -> None:
    """Lance: take() of batches in a random order, four in flight."""
    import lance as library  # type: ignore[import-not-found]

    rows, order = library.dataset(o["source"]), list(range(o["samples"]))
    random.Random(o["seed"]).shuffle(order)

    def read(part: list[int]) -> list[int]:
        column = rows.take(part, columns=["image"]).column(0)
        return [number_of(cell.as_py(), o["size"]) for cell in column]

    with ThreadPoolExecutor(4) as pool:
        loop(o, [in_advance(pool, order, o["batch_size"], 4, read)])


class Records:
    """Rows of a numpy.memmap for torch's loader, which opens the file in each worker."""

    def __init__(self, path: str, size: int) -> None:
        self.path, self.width, self.rows = path, size // 2, os.path.getsize(path) // size

    def __len__(self) -> int:
        return self.rows

    def __getitems__(self, indices: list[int]) -> Any:
        import numpy

        if not hasattr(self, "map"):
            self.map = numpy.memmap(self.path, dtype="<u2", mode="r").reshape(self.rows, self.width)
        return self.map[indices]


def memmap(o: dict[str, Any]) -> None:
    """numpy.memmap with random access: torch's loader with workers, a batch by one indexing."""
    import torch.utils.data

    loader = torch.utils.data.DataLoader(
        Records(o["source"], o["size"]), batch_size=o["batch_size"], shuffle=True, num_workers=o["workers"],  # type: ignore[arg-type]
        generator=torch.Generator().manual_seed(o["seed"]), collate_fn=numbers_of,
    )  # fmt: skip
    loop(o, [loader])


if __name__ == "__main__":
    {f.__name__: f for f in (write, lcache, mapped, threads, iterable, lance, memmap)}[sys.argv[1]](json.loads(sys.argv[2]))
