"""Real servers for tests: a folder of files, a cache made of it, and lcache processes that are started, stopped and killed.

The expected results come from the folder itself, and from the reimplementations of ImageFolder's and DistributedSampler's orders that
`lcache demo` contains. None of them comes from lcache's own code.
"""

import collections
import json
import os
import random
import signal
import subprocess
import sys
import threading

import pytest

import lcache

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "cmd", "lcache", "internal", "demo"))

from demo_reader import distributed_sampler, image_folder  # noqa: E402

BINARY = os.environ.get("LCACHE_BIN", os.path.join(ROOT, "bin", "lcache"))

needs_binary = pytest.mark.skipif(not os.access(BINARY, os.X_OK), reason=f"no {BINARY}: make build, or set LCACHE_BIN")


def environment(**more):
    """The environment of an lcache under test: that of this process, without settings of lcache except for the kind of I/O. The disk's speed decides nothing."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LCACHE_") or k in ("LCACHE_IO", "LCACHE_DIRECT")}
    return {**kept, "LCACHE_FACTS": "off", **more}


def lcache_command(*arguments, check=True):
    """Runs lcache and returns the finished process; its stdout is parsed when --json was among the arguments."""
    env = environment(LCACHE_TMPFS="1")  # temporary folders may be in memory
    done = subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, env=env, timeout=120)
    if check and done.returncode != 0:
        raise AssertionError(f"lcache {' '.join(map(str, arguments))} ended with {done.returncode}: {done.stderr}")
    done.json = json.loads(done.stdout) if "--json" in arguments and done.returncode == 0 else None
    return done


class Folder:
    """A dataset on disk, with its samples in ImageFolder's order: paths, labels and bytes."""

    def __init__(self, root, sizes, classes=7, seed=1):
        self.root = str(root)
        draw = random.Random(seed)
        for i, size in enumerate(sizes):
            path = os.path.join(self.root, f"class{i % classes}", f"part{i % 3}", f"{i:05d}.bin")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as f:
                f.write(draw.randbytes(size))
        self.files = image_folder(self.root)
        self.labels = [label for _, label in self.files]
        self.contents = []
        for path, _ in self.files:
            with open(path, "rb") as f:
                self.contents.append(f.read())
        self.bytes = sum(map(len, self.contents))

    def __len__(self):
        return len(self.files)


class Server:
    """A cache and the process that serves it."""

    def __init__(self, folder, cache, epochs=4, world=1, batch_size=16, seed=0, drop_last=False, budget=None, memory=None, extra=(), on_error=None):
        self.folder, self.cache, self.memory = folder, str(cache), memory
        self.epochs, self.world, self.batch_size, self.seed, self.drop_last = epochs, world, batch_size, seed, drop_last
        self.budget, self.extra, self.on_error = budget, list(extra), on_error
        self.socket = os.path.join(self.cache, "lcache.sock")
        self.process = None
        self.prefix, self.serve_flags = [], []  # of the command that serves
        self.log = None  # a file for what the server says; None: a pipe, which has room for 64 KiB

    def ingest(self):
        """Returns ingest's report."""
        flags = ["--recipe", "torch.distributed_sampler", "--seed", self.seed, "--epochs", self.epochs, "--batch-size", self.batch_size]
        flags += ["--world-size", self.world, *self.extra]
        flags += ["--drop-last"] if self.drop_last else []
        flags += ["--budget", self.budget] if self.budget else []
        flags += ["--memory", self.memory] if self.memory else []
        return lcache_command("ingest", "--source", self.folder.root, "--cache", self.cache, *flags, "--json", "--quiet").json

    def start(self):
        """Starts the server and returns when clients can connect."""
        self.launch()
        return self.ready()

    def launch(self):
        """Starts the server. ready() waits until clients can connect."""
        assert self.process is None
        env = environment(XDG_RUNTIME_DIR=self.cache)
        command = [*self.prefix, BINARY, "serve", "--cache", self.cache, "--json", "--quiet", *self.serve_flags] + (["--memory", str(self.memory)] if self.memory else [])
        command += ["--on-error", self.on_error] if self.on_error else []
        log = open(self.log, "a") if self.log else subprocess.PIPE
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=env)
        if self.log:
            log.close()

    def ready(self):
        if self.process.stdout.readline().strip() != "{":
            raise AssertionError(f"the server did not start: {self.process.communicate()[1] or contents(self.log)}")
        return self

    def stop(self):
        """Stops the server by SIGTERM, and asserts exit code 0. Returns its stderr."""
        if self.process is None:
            return ""
        process, self.process = self.process, None
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, f"the server ended with {process.returncode}: {errors or contents(self.log)}"
        return errors

    def kill(self):
        if self.process is not None:
            process, self.process = self.process, None
            process.kill()
            process.communicate(timeout=60)

    def status(self):
        return lcache_command("status", "--socket", self.socket, "--json").json

    def job(self):
        """The job's part of the status document."""
        return self.status()["jobs"][0]

    def connect(self, timeout=60.0):
        return lcache.connect(self.socket, timeout=timeout)

    def used(self):
        """The bytes of the cache on disk, as du counts them."""
        return sum(os.lstat(os.path.join(self.cache, name)).st_blocks * 512 for name in os.listdir(self.cache))

    # Expected results.

    def order(self, epoch, rank):
        if not self.drop_last:
            return distributed_sampler(len(self.folder), self.seed, epoch, self.world, rank)
        each = len(self.folder) // self.world
        return distributed_sampler(len(self.folder), self.seed, epoch, self.world, rank)[:each]

    def batches(self, epoch, rank):
        order = self.order(epoch, rank)
        return [order[i : i + self.batch_size] for i in range(0, len(order), self.batch_size)]

    def check(self, batch, indices):
        """Asserts that a batch has exactly these samples: indices, labels and every byte."""
        assert list(batch.indices) == list(indices)
        assert list(batch.labels) == [self.folder.labels[i] for i in indices]
        for index, sample in zip(indices, batch.samples):
            assert bytes(sample) == self.folder.contents[index], f"other bytes than {self.folder.files[index][0]}"

    def read(self, job, epoch, rank, start=0, stop=None):
        """Reads an epoch of one rank, or a part of it, and checks all of it. Returns the number of batches."""
        expected = self.batches(epoch, rank)
        number = start
        for number, batch in enumerate(job.epoch(epoch, rank=rank, start=start), start):
            self.check(batch, expected[number])
            if stop is not None and number + 1 == stop:
                return stop - start
        assert number + 1 == len(expected), f"epoch {epoch} rank {rank} ended after {number + 1} of {len(expected)} batches"
        return number + 1 - start

    def read_all(self, epochs=None, ranks=None):
        """Reads all ranks in parallel, each in a thread with its own connection."""
        epochs = range(self.epochs) if epochs is None else epochs
        ranks = range(self.world) if ranks is None else ranks
        read = collections.Counter()

        def one(rank):
            with self.connect() as job:
                for epoch in epochs:
                    read[rank] += self.read(job, epoch, rank)

        together(*((one, rank) for rank in ranks))
        return sum(read.values())


def contents(path):
    """The end of a text file; path may be None."""
    if path is None:
        return ""
    with open(path, errors="replace") as f:
        return f.read()[-5000:]


def together(*calls):
    """Runs each call, a tuple (function, arguments…), in its own thread. Raises the first error."""
    errors = []

    def guarded(function, *arguments):
        try:
            function(*arguments)
        except BaseException as e:  # noqa: BLE001: raised again below, in the main thread
            errors.append(e)

    threads = [threading.Thread(target=guarded, args=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
