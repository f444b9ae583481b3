"""However often datasets are made and dropped, no descriptor, memory map or process is left."""

import gc
import os

import pytest
from embedded_servers import folder, root, servers  # noqa: F401

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)

import lcache.torch as lt  # noqa: E402
from lcache._client import releases  # noqa: E402


def index(_, sample):
    return sample.index


def held():
    """Descriptors, maps of lcache's memory, and children."""
    gc.collect()
    releases.act()  # releases objects that have just ended now, not in 20 ms
    with open("/proc/self/maps") as f:
        maps = sum("memfd:" in line for line in f)
    with open("/proc/self/task/%d/children" % os.getpid()) as f:
        return len(os.listdir("/proc/self/fd")), maps, len(f.read().split())


def test_200_cycles(folder, root):
    def cycle():
        dataset = lt.Dataset(folder.root, index, cache=root)
        loader = lt.DataLoader(dataset, 64, shuffle=True, seed=1)
        assert next(iter(loader)).shape == (64,)

    cycle()
    before = held()
    for _ in range(200):
        cycle()
    assert held() == before
    assert len(servers(root)) == 1


def test_tensors_keep_their_bytes(folder, root):
    """Views and tensors outlive release, close, and the server."""
    job = lt.Dataset(folder.root, cache=root).job
    batch = job.get([5, 6])
    view = batch.samples[0]
    tensor = torch.frombuffer(batch.samples[1], dtype=torch.uint8)
    batch.release()
    del batch
    for _ in range(3):
        job.get(range(len(folder))).release()
    pid = job.pid
    job.close()
    os.kill(pid, 9)
    with lt.Dataset(folder.root, cache=root).job as again:
        assert again.pid != pid
        again.get(range(len(folder))).release()
    assert bytes(view) == folder.contents[5]
    assert bytes(tensor.tolist()) == folder.contents[6]
