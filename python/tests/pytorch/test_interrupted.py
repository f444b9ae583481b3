"""After an interrupt of lcache.open (while it lists a source or starts a server) or of a loader's epoch, the next attempt works."""

import pytest

from embedded_servers import folder, root  # noqa: F401
from interrupts import interrupted_everywhere

import lcache

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)

import lcache.torch as lt  # noqa: E402

STEP = 25  # every 25th point is tried, because each takes a listing and a server


def index(_, sample):
    return sample.index


def test_interrupted_open(folder, root, monkeypatch):
    monkeypatch.setenv("LCACHE_LINGER", "0")
    opened = 0

    def read():
        with lcache.open(folder.root, f"{root}/{opened}", timeout=20) as job:
            assert [bytes(view) for view in job.get([3, 200]).samples] == [folder.contents[3], folder.contents[200]]

    def after():
        nonlocal opened
        read()
        opened += 1

    assert interrupted_everywhere(read, after, STEP) > 100


def test_interrupted_loop(folder, root):
    """After an interrupt anywhere in lcache's code during an epoch, the next epoch of the same loader has every sample."""
    loader = lt.DataLoader(lt.Dataset(folder.root, index, cache=root), 32, shuffle=True, seed=5)

    def epoch():
        assert sorted(i for batch in loader for i in batch.tolist()) == list(range(len(folder)))

    assert interrupted_everywhere(epoch, epoch, 4 * STEP + 3) > 100
