"""examples/index_hdf5.py: every row that lcache serves is the row that h5py reads."""

import os
import subprocess
import sys

import pytest
from realserver import environment, needs_binary

import lcache

h5py = pytest.importorskip("h5py")
np = pytest.importorskip("numpy")

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, "../../examples/index_hdf5.py")


def index(folder, *arguments):
    env = {**os.environ, "PYTHONPATH": os.path.join(HERE, "..")}
    return subprocess.run([sys.executable, SCRIPT, *arguments], cwd=folder, env=env, capture_output=True, text=True, check=False)


@needs_binary
@pytest.mark.parametrize(
    ("how", "userblock"), [({}, 0), ({}, 1024), ({"chunks": (7, 3, 2)}, 0), ({"chunks": (7, 3, 2), "maxshape": (None, 3, 2)}, 512)], ids=str
)
def test_every_row(tmp_path, monkeypatch, how, userblock):
    for key, value in environment(LCACHE_TMPFS="1", LCACHE_LINGER="0").items():
        monkeypatch.setenv(key, value)
    draw = np.random.default_rng(1)
    for s in range(2):
        with h5py.File(tmp_path / f"x{s}.h5", "w", userblock_size=userblock) as f:
            f.create_dataset("junk", data=draw.random(100))
            f.create_dataset("deep/images", data=draw.random((20, 3, 2), dtype=np.float32), **how)
            f["labels"] = draw.integers(-5, 9, 20)
            if "maxshape" in how:
                f["deep/images"].resize(20, axis=0)
    done = index(tmp_path, "index.tsv", "deep/images", "labels", "x0.h5", "x1.h5")
    assert done.returncode == 0 and "40 rows" in done.stdout, done.stderr
    want = []
    for s in range(2):
        with h5py.File(tmp_path / f"x{s}.h5") as f:
            want += [(row.tobytes(), int(label)) for row, label in zip(f["deep/images"][:], f["labels"][:])]
    with lcache.open(f"ranges:{tmp_path}/index.tsv", cache=tmp_path / "cache") as job:
        batch = job.get(range(job.samples))
        assert [(bytes(data), label) for data, label in zip(batch.samples, batch.labels)] == want


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"compression": "gzip"}, "compressed"),
        ({"chunks": (7, 2, 2)}, "parts of rows"),
        ({"dtype": h5py.string_dtype()}, "without a fixed size"),
    ],
)
def test_rows_that_are_no_ranges(tmp_path, how, why):
    with h5py.File(tmp_path / "x.h5", "w") as f:
        f.create_dataset("images", shape=(20, 3, 2), **{"dtype": "f4", **how})
    done = index(tmp_path, "index.tsv", "images", "x.h5")
    assert done.returncode == 1 and why in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert not (tmp_path / "index.tsv").exists()
