"""A small training process: it reads batches from one server, as its parent requests, and compares all of them with the files.

    reader.py SOCKET TREE JOB        JOB: {"seed", "world", "batch_size", "drop_last"} as JSON

Each line on stdin is a JSON object: "do" names a method of Reader, the rest are its arguments. Each answer is a line of JSON on stdout,
{"done": result}, or {"error": "…"} if something was wrong. On request there are lines {"at": n} in between.
"""

import itertools
import json
import os
import random
import sys
import traceback

import oracle

import lcache


class Reader:
    def __init__(self, socket, tree, job):
        self.socket, self.tree, self.spec = socket, tree, job
        self.files = oracle.image_folder(tree)
        self.job = lcache.connect(socket)
        self.kept = []
        self.begun = None

    def ready(self):
        return self.job.samples == len(self.files)

    def expected(self, epoch, rank):
        s = self.spec
        order = oracle.distributed_sampler(len(self.files), s["seed"], epoch, s["world"], rank, s["drop_last"])
        return oracle.batches(order, s["batch_size"])

    def check(self, batch, indices, where):
        assert list(batch.indices) == list(indices), f"{where}: indices {list(batch.indices)[:8]}…, not {list(indices)[:8]}…"
        assert list(batch.labels) == [self.files[i][1] for i in indices], f"{where}: labels {list(batch.labels)}"
        assert len(batch.samples) == len(indices), f"{where}: {len(batch.samples)} samples"
        for index, view in zip(indices, batch.samples):
            path = self.files[index][0]
            assert bytes(view) == oracle.read(path), f"{where}: other bytes than {path}"

    def begin(self, epoch, rank):
        """Requests the first batch of an epoch, so that the server knows this rank. epoch() continues from there."""
        coming = self.job.epoch(epoch, rank=rank)
        self.begun = epoch, rank, itertools.chain([next(coming)], coming)

    def batches(self, epoch, rank, start):
        if self.begun and (epoch, rank, start) == (*self.begun[:2], 0):
            (*_, coming), self.begun = self.begun, None
            return coming
        return self.job.epoch(epoch, rank=rank, start=start)

    def epoch(self, epoch, rank, start=0, stop=None, report=0, names=False):
        """Reads batches start … stop-1, or to the end, and returns their number. With report=n every n-th batch writes a line {"at": [epoch, batch]}."""
        expected = self.expected(epoch, rank)
        number = start
        for batch in self.batches(epoch, rank, start):
            where = f"epoch {epoch} rank {rank} batch {number}"
            assert number < len(expected), f"{where}: the epoch has only {len(expected)}"
            self.check(batch, expected[number], where)
            if names:
                right = [os.path.relpath(self.files[i][0], self.tree) for i in expected[number]]
                assert batch.names == right, f"{where}: names {batch.names}, not {right}"
            number += 1
            if report and number % report == 0:
                print(json.dumps({"at": [epoch, number]}), flush=True)
            if number == stop:
                break
        last = len(expected) if stop is None else stop
        assert number == last, f"epoch {epoch} rank {rank} ended after {number} of {last} batches"
        return number - start

    def epochs(self, first, last, rank, report=0):
        return sum(self.epoch(epoch, rank, report=report) for epoch in range(first, last))

    def take_part(self, name, seed, epochs, report=0):
        """Reads epochs as a separate job, in orders that it pushes, and returns the name of its job."""
        with lcache.connect(self.socket, job=name) as job:
            for epoch in range(epochs):
                order = random.Random(f"{seed} {epoch}").sample(range(len(self.files)), len(self.files))
                expected = oracle.batches(order, self.spec["batch_size"])
                job.push_order(epoch, 0, expected)
                for number, batch in enumerate(job.epoch(epoch)):
                    self.check(batch, expected[number], f"job {name} epoch {epoch} batch {number}")
                    if report and number % report == 0:
                        print(json.dumps({"at": [epoch, number]}), flush=True)
                assert number == len(expected) - 1, f"job {name} epoch {epoch} ended after {number + 1} of {len(expected)} batches"
            return job.token

    def keep(self, epoch, rank, count):
        """Reads batches and keeps them."""
        coming = self.job.epoch(epoch, rank=rank)
        for indices in self.expected(epoch, rank)[:count]:
            self.kept.append((next(coming), indices))
        return self.check_kept()

    def check_kept(self):
        for batch, indices in self.kept:
            self.check(batch, indices, "a batch that was kept")
        return len(self.kept)

    def get(self, indices):
        self.check(self.job.get(indices), indices, "by index")
        return len(indices)


def main():
    socket, tree, job = sys.argv[1:]
    reader = Reader(socket, tree, json.loads(job))
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"done": getattr(reader, request.pop("do"))(**request)}
        except Exception:  # the parent raises the error
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), flush=True)
    reader.job.close()


if __name__ == "__main__":
    main()
