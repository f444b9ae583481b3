"""The PyTorch examples in docs/pytorch.md and README.md run as they are, except for the paths and the number of workers."""

import os
import re
import textwrap

import pictures
import pytest
import realserver
from embedded_servers import root  # noqa: F401

for needed in ("torch", "torchvision"):
    if not hasattr(pytest.importorskip(needed, reason=f"{needed} is not installed"), "__version__"):
        pytest.skip(f"{needed} is not installed", allow_module_level=True)

import PIL.Image  # noqa: E402
import torchvision  # noqa: E402

PAGE = os.path.join(realserver.ROOT, "docs", "pytorch.md")
README = os.path.join(realserver.ROOT, "README.md")
EPOCHS = 3


def blocks(page=PAGE, language="python"):
    with open(page) as f:
        return re.findall(rf"^```{language}\n(.*?)^```$", f.read(), re.M | re.S)


def run(block, names, known):
    for shown, ours in names.items():
        block = block.replace(shown, ours)
    exec(compile(textwrap.dedent(block), PAGE, "exec"), known)


def test_every_block_runs(root, tmp_path, monkeypatch):
    photos = pictures.make(str(tmp_path / "train"), count=40, side=4)
    known = {"transform": torchvision.transforms.ToTensor(), "epochs": EPOCHS}
    os.makedirs(tmp_path / "tokens")
    for i in range(20):
        (tmp_path / "tokens" / f"{i}.bin").write_bytes(bytes(4 * 512))
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    pixels = [{"image": PIL.Image.new("RGB", (4, 4), (i, 0, 0))} for i in range(20)]
    datasets.Dataset.from_list(pixels, features=datasets.Features({"image": datasets.Image()})).save_to_disk(tmp_path / "saved")
    names = {"/data/saved": str(tmp_path / "saved"), "/data/train": photos, "/data/tokens": str(tmp_path / "tokens"), "/nvme/lcache": root, "num_workers=8": "num_workers=1", "batch_size=256": "batch_size=8"}
    found = blocks()
    assert len(found) >= 2 and all(name in "".join(found) for name in names)
    measure = [block for block in found if "headspace" in block]
    more = [block for block in found if "check(" in block or "loader.metrics" in block]
    for block in found:
        if block not in measure + more:
            run(block, names, known)
    # The second loader continued from the first one's beginning: all epochs were read to their ends.
    ahead = known["loader"].batch_sampler.order_ahead
    assert (ahead.epoch, ahead.complete, ahead.exact) == (EPOCHS - 1, True, True)
    assert known["loader"].seed == 0 and known["dataset"].job.stats()["jobs"][0]["samples_delivered"] == EPOCHS * 40
    assert len(measure) == 1 and len(more) == 2
    run(measure[0], names, known)  # reads the other examples' loader twice more
    report = known["space"].report()  # it keeps more than five batches, so the loader itself is measured
    assert report.best is None and report.real > 0
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    for block in more:
        run(block, {**names, "range(epochs)": "range(1)"}, known)
    assert len(known["dataset"]) == 40


def test_two_changed_lines(root, tmp_path, monkeypatch):
    """README's diff: both sides run, and give the same images."""
    photos = pictures.make(str(tmp_path / "train"), count=40, side=4)
    monkeypatch.setenv("LCACHE_CACHE", root)
    (diff,) = blocks(README, "diff")
    read = {}
    for side in "-+":
        code = "".join(line[1:] + "\n" for line in diff.splitlines() if line[0] in (" ", side))
        for shown, ours in {"/data/train": photos, "num_workers=8": "num_workers=0", "batch_size=256": "batch_size=8"}.items():
            assert shown in code
            code = code.replace(shown, ours)
        known = {"transform": torchvision.transforms.ToTensor()}
        exec(compile(code, README, "exec"), known)
        read[side] = [(image.sum().item(), label) for image, label in known["loader"].dataset]
        assert sum(len(labels) for _, labels in known["loader"]) == 40
    assert read["-"] == read["+"]
