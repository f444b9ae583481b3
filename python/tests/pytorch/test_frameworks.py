"""torch's own DDP, accelerate and Lightning, in one process and in two, get the same batches as without lcache."""

import importlib.metadata
import importlib.util
import io
import json
import os
import pathlib
import tokenize

import pytest
from embedded_servers import folder, root  # noqa: F401
from forked import Program, start_ranks

if importlib.util.find_spec("torch") is None or importlib.util.find_spec("torch").origin is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import lcache.torch  # noqa: E402
from lcache.torch._order.frameworks import TESTED  # noqa: E402

pytestmark = pytest.mark.xdist_group("forked")  # so that the imports of forked.py run once

HERE = os.path.dirname(os.path.abspath(__file__))
ACCELERATE = ["accelerate" + how for how in ("", ", seedable", ", watched", ", split", ", uneven", ", uneven split")]
NEEDS = {"torch": "torch", **dict.fromkeys(ACCELERATE, "accelerate"), "lightning": "lightning"}


@pytest.mark.parametrize("name", sorted(TESTED))
def test_releases(name):
    """lcache.torch._order.frameworks uses private parts of frameworks. It lists the releases that are tested here."""
    with open(os.path.join(HERE, "../live/requirements.txt")) as f:
        assert f"{name}=={TESTED[name]}\n" in f.readlines(), "frameworks.py and the tests' requirements name different releases"
    try:
        installed = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{name} is not installed")
    assert installed.split("+")[0] == TESTED[name]


def test_insides_are_in_one_file():
    """No other module of lcache.torch names a package that is built on torch, or inspects the stack."""
    for module in sorted(pathlib.Path(lcache.torch.__file__).parent.glob("*.py")):
        words = [token.string for token in tokenize.generate_tokens(io.StringIO(module.read_text()).readline) if token.type == tokenize.NAME]
        if module.name != "frameworks.py":
            assert not {"accelerate", "lightning", "_getframe", "f_locals", "split_batches", "num_processes", "process_index"} & set(words), module.name


@pytest.mark.parametrize("world", [1, 2])
def test_frameworks(folder, root, tmp_path, world):
    names = [name for name, needs in NEEDS.items() if importlib.util.find_spec(needs)]
    running = start_ranks(world, os.path.join(HERE, "frameworks_run.py"), folder.root, root, tmp_path / "out", *names)
    errors = [process.communicate(timeout=300)[1] for process in running]
    assert [process.returncode for process in running] == [0] * world, errors[0][-3000:]
    results = [json.loads((tmp_path / f"out-{rank}").read_text()) for rank in range(world)]
    for name in names:
        for result in results:
            assert result[name]["lcache"] == result[name]["plain"], f"{name} on {world}: other batches than without lcache"
            status = result[name]["status"]
            assert status["divergences"] == 0, name
            assert [r["rank"] for r in status["ranks"] if r["pid"]] == list(range(world)), f"{name}: not each rank has an order of its own"
            # The server does not wait for a rank that is an epoch behind another one, so epochs may end in another order.
            assert sorted(e["epoch"] for e in status["epochs_done"] if e["order_digest"]) == [0, 1, 2], f"{name}: batches came without their places"
        for epoch in range(3):
            seen = [i for result in results for batch in result[name]["lcache"][epoch] for i in batch]
            assert sorted(set(seen)) == list(range(len(folder))), f"{name} on {world}: epoch {epoch} left out samples"
            assert len(seen) - len(folder) < 16 * world, f"{name} on {world}: epoch {epoch} repeats samples"
    for said in errors:
        warned = "each of them reads all samples: give the loader a DistributedSampler"
        assert said.count(warned) == said.partition("without a sampler")[2].count(warned) == (world > 1)
    not_there = sorted({needs for needs in NEEDS.values() if not importlib.util.find_spec(needs)})
    if not_there:
        pytest.skip(f"{', '.join(not_there)}: not installed; the others are right")


@pytest.mark.skipif(importlib.util.find_spec("lightning") is None, reason="lightning is not installed")
def test_lightning_spawns(folder, root, tmp_path):
    """ddp_spawn: the dataset and the loader are pickled into two processes, which read every index once an epoch, in torch's order."""
    program = Program(os.path.join(HERE, "spawn_run.py"), folder.root, root, tmp_path / "out")
    _, errors = program.communicate(300)
    assert program.returncode == 0, errors[-3000:]
    ranks = [json.loads((tmp_path / f"out-{rank}").read_text()) for rank in range(2)]
    for epoch in range(3):
        assert all(ours == plain for rank in ranks for ours, plain in rank["seen"][epoch]), f"epoch {epoch}: other batches than without lcache"
        assert sorted(i for rank in ranks for ours, _ in rank["seen"][epoch] for i in ours) == list(range(len(folder)))
    status = ranks[0]["status"]
    assert [r["rank"] for r in status["ranks"] if r["pid"]] == [0, 1] and status["divergences"] == 0
