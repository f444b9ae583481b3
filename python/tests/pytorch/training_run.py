"""A training that a test controls: it takes one batch for each line on stdin. After the end of stdin it runs freely.

training_run.py SOURCE CACHE WORKERS [fork|spawn]. It prints a JSON line for each batch: [[index, SHA-256 of the sample], ...]. Before an epoch it prints {"epoch": e}, and
waits for a line.
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
    signal.signal(signal.SIGINT, signal.default_int_handler)  # programs that a shell starts in the background ignore SIGINT
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
