"""watch() accepts a DataLoader, or a loader around one, and refuses anything else."""

import logging

import pytest
from embedded_servers import folder, root  # noqa: F401

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)

from torch.utils import data  # noqa: E402

import lcache.torch as lt  # noqa: E402


def picture(_, sample):
    return torch.full((3, 2, 2), sample.index, dtype=torch.uint8), sample.label


class Around:
    """A loader that holds another one, like timm's PrefetchLoader."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        yield from self.loader

    def __len__(self):
        return len(self.loader)


def around(loader):
    return Around(loader)


def prefetched(loader):
    timm = pytest.importorskip("timm.data.loader", reason="timm is not installed")
    return timm.PrefetchLoader(loader, device=torch.device("cpu"))


@pytest.mark.parametrize("wrap", [around, prefetched])
def test_a_loader_around_a_loader(folder, root, wrap, caplog):
    """watch() watches the loader inside, and returns the same outer object."""
    caplog.set_level(logging.INFO, "lcache")
    ours = lt.Dataset(folder.root, picture, cache=root)
    outer = wrap(data.DataLoader(ours, 16, shuffle=True, generator=torch.Generator().manual_seed(1)))
    assert lt.watch(outer) is outer and lt.watch(outer) is outer
    for epoch in range(2):
        assert len(list(outer)) == len(outer)
        assert outer.loader.batch_sampler.order_ahead.exact is True
    assert outer.loader.state_dict()["epoch"] == 2
    assert sum("epoch 1" in r.getMessage() and "exact" in r.getMessage() for r in caplog.records) == 1


@pytest.mark.parametrize("value", [[1, 2, 3], None, "loader", data.TensorDataset(torch.zeros(3)), Around([1, 2]), Around(Around(None))])
def test_anything_else_is_refused(value):
    with pytest.raises(TypeError, match=rf"^watch takes a DataLoader, or an object that has one as its attribute `loader`, not {type(value).__name__}"):
        lt.watch(value)
