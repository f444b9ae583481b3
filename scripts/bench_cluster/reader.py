"""The training process of one machine of bench-cluster: it reads one rank's batches from the server of its machine, as lines on stdin request.

    {"epoch": 2, "rank": 0, "rate": 20e6}    rate: bytes per second that the training uses, 0 for as fast as they come

The answer is a line: when each batch was requested, how long it was waited for, and the numbers of the samples.
"""

from __future__ import annotations

import array
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.dont_write_bytecode = True
from bench_runs.roles import number_of  # noqa: E402

import lcache  # noqa: E402


def read(job: Any, size: int, epoch: int, rank: int, rate: float) -> dict[str, Any]:
    numbers, waits = array.array("I"), []
    began = asked = time.monotonic()
    for batch in job.epoch(epoch, rank=rank):
        came = time.monotonic()
        waits.append((asked, came - asked))
        numbers.extend(number_of(view, size) for view in batch.samples)
        batch.release()
        if rate:
            time.sleep(max(0.0, came + len(batch.indices) * size / rate - time.monotonic()))
        asked = time.monotonic()
    return {"began": began, "ended": asked, "waits": waits, "numbers": numbers.tolist()}


def main() -> None:
    o = json.loads(sys.argv[1])
    job = lcache.connect(o["socket"], timeout=o["timeout"])
    print(json.dumps({"kind": "ready"}), flush=True)
    for line in sys.stdin:
        try:
            print(json.dumps({"kind": "epoch", **read(job, o["size"], **json.loads(line))}), flush=True)
        except (lcache.Error, ValueError) as e:
            print(json.dumps({"kind": "failed", "why": f"{type(e).__name__}: {e}"}), flush=True)
    job.close()


if __name__ == "__main__":
    main()
