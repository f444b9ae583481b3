"""A training that a test steps: it takes one batch for each line on stdin, and goes on freely at stdin's end.

training_run.py SOURCE CACHE WORKERS [fork|spawn]. It prints a JSON line for each batch: [[index, SHA-256 of the sample], ...]. {"epoch": e} comes before an epoch, when it
waits for its first line.
"""

import hashlib
import json
import logging
import signal
import sys

import lcache.torch as lt

SIZE, EPOCHS, SEED = 8, 2, 5


def digest(data, sample):
    return sample.index, hashlib.sha256(data).hexdigest()


def main(source, cache, workers, method=None):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what it starts in the background ignore it
    logging.basicConfig(format="%(levelname)s %(message)s", stream=sys.stderr)
    dataset = lt.Dataset(source, digest, cache=cache)
    loader = lt.DataLoader(
        dataset, SIZE, shuffle=True, seed=SEED, num_workers=int(workers), collate_fn=list, multiprocessing_context=method, prefetch_factor=2 if int(workers) else None
    )
    for epoch in range(EPOCHS):
        print(json.dumps({"epoch": epoch, "server": dataset.job.pid}), flush=True)
        sys.stdin.readline()
        for batch in loader:
            print(json.dumps(batch), flush=True)
            sys.stdin.readline()


if __name__ == "__main__":
    main(*sys.argv[1:])
