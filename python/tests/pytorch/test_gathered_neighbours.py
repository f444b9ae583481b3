"""gather=True: each rank counts neighbours among the embeddings of all ranks."""

import json

import pytest
from forked import start_ranks

from lcache.neighbours import Bank, Options

numpy = pytest.importorskip("numpy", reason="numpy is not installed")
torch = pytest.importorskip("torch", reason="torch is not installed")

pytestmark = pytest.mark.xdist_group("forked")  # so that the imports of forked.py run once

SAMPLES, BATCH, WIDTH, RADIUS = 64, 8, 4, {"lam": 1, "alpha": 0.1}

RANK = """
import json, sys
import torch
from lcache.errors import ArgumentError
from lcache.neighbours import Options
from lcache.torch import Neighbours

torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
given = json.load(open(sys.argv[1]))
bank = Neighbours(gather=True)(given["labels"], Options(**given["options"]))
for number, batches in enumerate(given["steps"]):
    index, rows = batches[rank]
    try:
        found = bank.observe(index, rows, 0)
        print(json.dumps([list(found.indices), list(found.same), list(found.other)]))
    except ArgumentError:
        print("null")
torch.distributed.destroy_process_group()
"""


def test_as_one_bank(tmp_path):
    """If a rank can't observe a batch, the batch is left out, and no rank waits for it."""
    rng = numpy.random.default_rng(3)
    labels = rng.integers(0, 3, SAMPLES).tolist()
    steps = [[(part.tolist(), rng.normal(size=(BATCH, WIDTH)).tolist()) for part in pair] for pair in rng.permutation(SAMPLES).reshape(-1, 2, BATCH)]
    steps[1][1] = (steps[1][1][0], [[1.0]])
    (tmp_path / "given").write_text(json.dumps({"labels": labels, "steps": steps, "options": RADIUS}))
    (tmp_path / "rank.py").write_text(RANK)
    said = [program.communicate(60) for program in start_ranks(2, tmp_path / "rank.py", tmp_path / "given")]
    bank = Bank(labels, Options(**RADIUS))
    want = [[], []]
    for number, batches in enumerate(steps):
        fine = [batch for batch in batches if len(batch[0]) == len(batch[1])]
        found = bank.observe(sum((index for index, _ in fine), []), sum((rows for _, rows in fine), []), 0)
        columns = [list(found.indices), list(found.same), list(found.other)]
        for rank in range(2):
            mine = slice(rank * BATCH, (rank + 1) * BATCH)
            want[rank].append([column[mine] for column in columns] if batches[rank] in fine else None)
    assert sum(want[0][-1][1]) > 0, "no sample has neighbours"
    for rank, (out, errors) in enumerate(said):
        assert [json.loads(line) for line in out.splitlines()] == want[rank], errors
