"""The processes that bench-runs measures: a PyTorch loop over lcache, 32 threads over plain files, random reads of the device.

Each prints lines of JSON, is ready with the first one, and begins when a line comes on stdin. Each looks at every sample that it gets: a sample holds
its own number at both ends, so that an epoch that lacks a sample, or has one twice, is an error and no figure.
"""

from __future__ import annotations

import array
import ctypes
import hashlib
import json
import mmap
import os
import random
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

THREADS = 32


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def ready() -> None:
    say(kind="ready")
    if not sys.stdin.readline():
        sys.exit("the benchmark ended before this process began")


# Samples: 4 bytes of number, bytes of a pool, 4 bytes of inverted number.


def sample_path(root: Path, number: int) -> Path:
    return root / f"class{number // 1000:04d}" / f"{number:07d}.bin"


def write_samples(root: Path, numbers: Sequence[int], size: int) -> None:
    pool = pool_for(size)
    for number in numbers:
        path = sample_path(root, number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(number, size, pool))


def pool_for(size: int) -> bytes:
    """What the samples of a size are cut from."""
    return random.Random(size).randbytes(1 << 22)


def content(number: int, size: int, pool: bytes) -> bytes:
    at = number * 7919 % (len(pool) - size)
    return number.to_bytes(4, "little") + pool[at : at + size - 8] + (number ^ 0xFFFFFFFF).to_bytes(4, "little")


def number_of(data: bytes, size: int) -> int:
    number = int.from_bytes(data[:4], "little")
    if len(data) != size or int.from_bytes(data[-4:], "little") != number ^ 0xFFFFFFFF:
        raise ValueError(f"a sample of {len(data)} bytes that begins with {data[:8].hex()} is none of the set")
    return number


class Count:
    """The samples of one epoch: each must come once."""

    def __init__(self, samples: int, size: int) -> None:
        self.size, self.seen, self.order = size, bytearray(samples), array.array("I")
        self.began = self.last = time.monotonic()
        say(kind="progress", t=self.began, samples=0)

    def take(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self.seen[number] += 1
        self.order.extend(numbers)
        now = time.monotonic()
        if now - self.last > 0.2:
            self.last = now
            say(kind="progress", t=now, samples=len(self.order))

    def end(self, epoch: int, **more: Any) -> None:
        ended = time.monotonic()
        missing, twice = self.seen.count(0), sum(n > 1 for n in self.seen)
        if missing or twice or len(self.order) != len(self.seen):
            raise ValueError(f"epoch {epoch} had {len(self.order)} samples of {len(self.seen)}: {missing} missing, {twice} more than once")
        say(kind="progress", t=ended, samples=len(self.order))
        say(
            kind="epoch", epoch=epoch, seconds=ended - self.began, samples=len(self.order), bytes=len(self.order) * self.size,
            digest=hashlib.sha256(self.order.tobytes()).hexdigest()[:16], **more,
        )  # fmt: skip


def reader(o: dict[str, Any]) -> None:
    """The two changed lines: a dataset and a loader of lcache.torch."""
    from lcache.torch import DataLoader, Dataset  # type: ignore[import-not-found]

    opened = time.monotonic()
    options = {"memory": o["memory"]} if o["memory"] else {}
    dataset = Dataset(o["source"], cache=o["cache"], **options)
    size = o["size"]
    loader = DataLoader(
        dataset, batch_size=o["batch_size"], shuffle=True, num_workers=o["workers"], seed=o["seed"],
        collate_fn=lambda items: [number_of(data, size) for data, _ in items],
    )  # fmt: skip
    say(kind="opened", seconds=time.monotonic() - opened)
    ready()
    for epoch in range(o["epochs"]):
        count = Count(o["samples"], size)
        first = None
        for numbers in loader:
            if first is None:
                first = time.monotonic() - count.began
            count.take(numbers)
        status = dataset.job.stats()
        figures = {**status["jobs"][0], **status.get("totals", {})}  # older programs have none
        totals = {k: figures.get(k) for k in ("hits", "misses", "divergences", "random_reads", "source_reads", "source_bytes", "corrupt_samples", "layout")}
        count.end(epoch, first_batch=first, totals=totals)
    dataset.job.close()


def validation(o: dict[str, Any]) -> None:
    """A pass over the first samples in the order of the source, by a loader of its own."""
    from lcache.torch import DataLoader, Dataset

    dataset = Dataset(o["source"], cache=o["cache"])
    size = o["size"]
    loader = DataLoader(
        dataset, batch_size=o["batch_size"], sampler=range(o["samples"]), num_workers=o["workers"],
        collate_fn=lambda items: [number_of(data, size) for data, _ in items],
    )  # fmt: skip
    ready()
    count = Count(o["samples"], size)
    for numbers in loader:
        count.take(numbers)
    count.end(0)
    dataset.job.close()


def plain(o: dict[str, Any]) -> None:
    """32 threads that read files in a random order, in as many processes as there are CPUs: Python's threads can't use more than one."""
    order = list(range(o["samples"]))
    random.Random(o["seed"]).shuffle(order)
    processes = min(os.cpu_count() or 1, THREADS)
    root, size = Path(o["source"]), o["size"]
    ready()
    count = Count(o["samples"], size)
    children = []
    for p in range(processes):
        into, out = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(into)
            _plain_share(root, size, order[p::processes], THREADS // processes, out)
        os.close(out)
        children.append((pid, into))
    for pid, into in children:
        with os.fdopen(into, "rb") as f:
            numbers = array.array("I", f.read())
        if os.waitpid(pid, 0)[1]:
            raise ValueError("a process that reads plain files failed")
        count.take(numbers)
    count.end(0)


def _plain_share(root: Path, size: int, numbers: list[int], threads: int, out: int) -> None:
    """Reads files in one process, writes the numbers of the correct files to a pipe, and ends the process."""
    done, lock, failed = array.array("I"), threading.Lock(), []
    left = iter(numbers)

    def work() -> None:
        try:
            while True:
                with lock:
                    number = next(left, None)
                if number is None:
                    return
                if number_of(sample_path(root, number).read_bytes(), size) != number:
                    raise ValueError(f"{sample_path(root, number)} holds another sample")
                with lock:
                    done.append(number)
        except Exception as e:  # noqa: BLE001 - told to the parent by the exit code
            failed.append(e)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    if failed:
        print(failed[0], file=sys.stderr)
    with os.fdopen(out, "wb") as f:
        f.write(done.tobytes())
    os._exit(bool(failed))


class _Request(ctypes.Structure):  # struct iocb of linux/aio_abi.h, on a little-endian machine
    _fields_ = (
        ("data", ctypes.c_uint64), ("key", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("opcode", ctypes.c_uint16), ("priority", ctypes.c_int16),
        ("fd", ctypes.c_uint32), ("buffer", ctypes.c_uint64), ("length", ctypes.c_uint64), ("offset", ctypes.c_int64), ("rest", ctypes.c_uint64 * 2),
    )  # fmt: skip


class _Event(ctypes.Structure):
    _fields_ = (("data", ctypes.c_uint64), ("request", ctypes.c_uint64), ("result", ctypes.c_int64), ("result2", ctypes.c_int64))


_SETUP, _GETEVENTS, _SUBMIT = (0, 4, 2) if os.uname().machine == "aarch64" else (206, 208, 209)


def device(o: dict[str, Any]) -> None:
    """Random reads of one size past the page cache, 32 in flight, for some seconds: where fio is missing."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(*args: Any) -> int:
        got = libc.syscall(*args)
        if got < 0:
            raise OSError(ctypes.get_errno(), f"system call {args[0]}: {os.strerror(ctypes.get_errno())}")
        return int(got)

    fd = os.open(o["file"], os.O_RDONLY | os.O_DIRECT)
    size, places = o["size"], os.fstat(fd).st_size // o["size"]
    memory = mmap.mmap(-1, size * THREADS)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    context = ctypes.c_uint64()
    call(_SETUP, THREADS, ctypes.byref(context))
    requests, events = (_Request * THREADS)(), (_Event * THREADS)()
    pointers = (ctypes.c_void_p * THREADS)()
    step = ctypes.sizeof(_Request)
    draw = random.Random(o["seed"]).randrange
    for i, r in enumerate(requests):
        r.data, r.fd, r.buffer, r.length = i, fd, base + i * size, size
    ready()
    began, done, free = time.monotonic(), 0, list(range(THREADS))
    while time.monotonic() < began + o["seconds"]:
        for k, i in enumerate(free):
            requests[i].offset = draw(places) * size
            pointers[k] = ctypes.addressof(requests) + i * step
        at = 0
        while at < len(free):
            at += call(_SUBMIT, context, ctypes.c_long(len(free) - at), ctypes.byref(pointers, at * 8))
        came = call(_GETEVENTS, context, ctypes.c_long(1), ctypes.c_long(THREADS), events, None)
        for e in events[:came]:
            if e.result != size:
                raise OSError(f"a read of {size} bytes gave {e.result}")
        free = [e.data for e in events[:came]]
        done += came
    seconds = time.monotonic() - began
    if not done:
        raise OSError("no read came back")
    say(kind="device", by="own reader", seconds=seconds, bytes=done * size)


if __name__ == "__main__":
    {"reader": reader, "validation": validation, "plain": plain, "device": device}[sys.argv[1]](json.loads(sys.argv[2]))
