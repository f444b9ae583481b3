"""The examples run, and print the same as without lcache if that is possible."""

import importlib.util
import os
import pathlib
import random
import re
import shutil
import struct
import wave

import pictures
import pytest
import realserver
from embedded_servers import folder, root  # noqa: F401
from forked import Program, start_ranks

pytestmark = pytest.mark.xdist_group("forked")  # so that the imports of forked.py run once

EXAMPLES = os.path.join(realserver.ROOT, "examples")


def needs(*modules):
    for module in modules:
        found = importlib.util.find_spec(module)
        if found is None or found.origin is None:
            pytest.skip(f"{module} is not installed")


def run(script, *arguments, ranks=1):
    """The example's output and errors. Several ranks start as under torchrun, but without its process; their output is joined."""
    script = os.path.join(EXAMPLES, script)
    running = start_ranks(ranks, script, *arguments) if ranks > 1 else [Program(script, *arguments)]
    said = [process.communicate(timeout=200) for process in running]
    assert [process.returncode for process in running] == [0] * ranks, said[0][1][-3000:]
    return "".join(out for out, _ in said), "".join(err for _, err in said)


@pytest.fixture(scope="module")
def photos(source_dir):
    return pictures.make(os.path.join(source_dir(), "train"), count=60, side=20)


def losses(out):
    return [float(loss) for loss in re.findall(r"^epoch \d+ loss (\S+)$", out, re.M)]


def test_train_imagefolder(photos, root):
    needs("torch", "torchvision")
    ours, told = run("train_imagefolder.py", photos, "--cache", root, "--workers", "1")
    theirs, _ = run("train_imagefolder.py", photos, "--plain", "--workers", "0")
    assert ours == theirs
    first, _, last = losses(ours)
    assert last < first, "it does not learn"
    assert len(re.findall(r"^train · epoch \d: .* s, loop waited .* %, .* MB/s, exact [0-9a-f]{4}…$", told, re.M)) == 3


@pytest.fixture(scope="module")
def tokens(source_dir):
    """Rows of 64 numbers below 100, which increase by a step of their row."""
    where = pathlib.Path(source_dir(), "train")
    for i in range(60):
        path = where / f"c{i % 3}" / f"{i:02d}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(struct.pack("<64i", *((i * 7 + k * (1 + i % 3)) % 100 for k in range(64))))
    return path.parents[1]


def test_whole_batches(tokens, root):
    needs("torch", "numpy")
    said = {way: run("whole_batches.py", tokens, "--way", way, "--cache", root, "--workers", "1")[0] for way in ("plain", "tensor", "views", "numpy")}
    first, _, last = losses(said["plain"])
    assert last < first, "it does not learn"
    assert all(out == said["plain"] for out in said.values()), said


@pytest.mark.parametrize("method, trained", [("none", [60] * 6), ("impact", [60] + [30] * 5), ("spider", [60] * 6)])
def test_importance(photos, root, method, trained):
    """The example learns as well with each method as without. ImPACT trains on half of the samples, except in the first epoch."""
    needs("torch", "torchvision", "numpy")
    out, _ = run("importance.py", photos, "--cache", root, "--method", method, "--workers", "1", *(["--weights"] if method == "impact" else []))
    epochs = re.findall(r"^epoch (\d): (\d+) samples trained, loss (\S+), accuracy (\S+)$", out, re.M)
    assert [int(number) for number, *_ in epochs] == list(range(6))
    assert [int(samples) for _, samples, *_ in epochs] == trained
    assert float(epochs[-1][2]) < float(epochs[0][2]) and float(epochs[-1][3]) > 0.9, "it does not learn"


def test_ddp_and_checkpoint(folder, root, tmp_path):
    """Two ranks stop in the middle of an epoch, and three continue. Together they read every sample once, then a whole epoch."""
    needs("torch")
    common = folder.root, "--cache", root, "--checkpoint", tmp_path / "checkpoint"
    seen = {0: [], 1: []}
    for ranks, stop in ((2, 7), (3, 0)):
        out, _ = run("ddp.py", *common, "--stop-after", stop, ranks=ranks)
        for epoch, indices in re.findall(r"epoch (\d) rank \d indices \[(.*?)\]", out):
            seen[int(epoch)] += map(int, indices.split(","))
    for epoch in seen:
        assert sorted(set(seen[epoch])) == list(range(len(folder)))
        assert len(seen[epoch]) - len(folder) <= 2, "more than padding was read twice"


def test_lightning(photos, root):
    needs("torch", "torchvision", "lightning")
    out, _ = run("lightning_module.py", photos, "--cache", root)
    first, _, last = losses(out)
    assert last < first, "it does not learn"


def test_hf_trainer(folder, root, tmp_path):
    """Resumed from a checkpoint, Trainer gets the same indices as without lcache."""
    needs("torch", "transformers", "accelerate")

    def train(out, *flags):
        said, _ = run("hf_trainer.py", folder.root, tmp_path / out, "--epochs", "1", "--cache", root, *flags)
        return re.findall(r"indices \[(.*?)\]", said)

    seen = {}
    for way, flags in (("ours", ()), ("plain", ("--plain",))):
        whole = train(way, *flags)
        for step in sorted(int(name.split("-")[1]) for name in os.listdir(tmp_path / way))[2:]:
            shutil.rmtree(tmp_path / way / f"checkpoint-{step}")
        seen[way] = whole, train(way, "--resume", *flags)
    assert seen["ours"] == seen["plain"]
    whole, again = seen["ours"]
    assert whole[8:] == again and len(whole) == 30


def test_audio(root, tmp_path):
    needs("torch")
    draw = random.Random(1)
    for i in range(20):
        path = tmp_path / "sounds" / ("loud", "soft")[i % 2] / f"{i}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        with wave.open(str(path), "wb") as f:
            f.setnchannels(1), f.setsampwidth(2), f.setframerate(8000)
            level = (20000, 200)[i % 2]
            f.writeframes(b"".join(draw.randrange(-level, level).to_bytes(2, "little", signed=True) for _ in range(1000 + 100 * i)))
    out, _ = run("audio_dataset.py", tmp_path / "sounds", "--cache", root)
    lines = re.findall(r"epoch (\d): (\d+) sounds, loud (\S+), soft (\S+)", out)
    assert [line[:2] for line in lines] == [("0", "20"), ("1", "20")]
    assert all(float(loud) > 100 * float(soft) for _, _, loud, soft in lines)


def test_jax(folder, root):
    needs("jax", "numpy")
    out, _ = run("jax_iterator.py", folder.root, "--cache", root)
    assert out.splitlines() == [f"epoch {e}: 240 samples, the order is jax.random.permutation's: True" for e in range(2)]
