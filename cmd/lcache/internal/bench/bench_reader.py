"""The Python end of lcache bench: takes every batch of an epoch, all ranks of this node in turn, and looks at each sample's length."""

import json
import sys
import time

import lcache

socket, epoch, ranks = sys.argv[1], int(sys.argv[2]), [int(r) for r in sys.argv[3].split(",")]
with lcache.connect(socket) as job:
    samples = size = 0
    began = time.monotonic()
    readers = [job.epoch(epoch, rank=rank) for rank in ranks]
    while readers:
        for reader in list(readers):
            batch = next(reader, None)
            if batch is None:
                readers.remove(reader)
                continue
            samples += len(batch.indices)
            size += sum(len(view) for view in batch.samples)
            batch.release()
    print(json.dumps({"samples": samples, "bytes": size, "seconds": time.monotonic() - began}))
