"""What docs/pytorch.md shows runs as it stands there, but for the paths and the number of workers."""

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

import torchvision  # noqa: E402

PAGE = os.path.join(realserver.ROOT, "docs", "pytorch.md")
EPOCHS = 3


def blocks():
    with open(PAGE) as f:
        return re.findall(r"^```python\n(.*?)^```$", f.read(), re.M | re.S)


def test_every_block_runs(root, tmp_path):
    photos = pictures.make(str(tmp_path / "train"), count=40, side=4)
    known = {"transform": torchvision.transforms.ToTensor(), "epochs": EPOCHS}
    names = {"/data/train": photos, "/nvme/lcache": root, "num_workers=8": "num_workers=1", "batch_size=256": "batch_size=8"}
    found = blocks()
    assert len(found) >= 2 and all(name in "".join(found) for name in names)
    for block in found:
        for shown, ours in names.items():
            block = block.replace(shown, ours)
        exec(compile(textwrap.dedent(block), PAGE, "exec"), known)
    # The second one went on where the first began: all epochs were read to their ends.
    course = known["loader"].batch_sampler.course
    assert (course.epoch, course.complete, course.exact) == (EPOCHS - 1, True, True)
    assert known["loader"].seed == 0 and known["dataset"].job.stats()["jobs"][0]["samples_delivered"] == EPOCHS * 40
