"""Datasets accept the same indices as torch's: one or several, of any integer type. Anything else raises IndexError or TypeError."""

import os
import struct
from array import array

import pytest
from embedded_servers import folder, root  # noqa: F401

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)
numpy = pytest.importorskip("numpy", reason="numpy is not installed")

from torch.utils import data  # noqa: E402

import lcache.torch as lt  # noqa: E402

SEVERAL = [[3, 5, -1], range(3, 9, 2), array("I", [3, 5]), numpy.array([3, 5], dtype=numpy.uint8), torch.tensor([3, 5]), numpy.array([4]), []]


def index(_, sample):
    return sample.index


@pytest.fixture
def tokens(tmp_path):
    os.makedirs(tmp_path / "train")
    for i in range(40):
        (tmp_path / "train" / f"{i:02d}").write_bytes(struct.pack("<2i", i, -i))
    return tmp_path / "train"


@pytest.mark.parametrize("several", SEVERAL, ids=str)
def test_several_at_once(folder, tokens, root, several):
    ours = lt.Dataset(folder.root, index, cache=root)
    want = [int(i) % 240 for i in several]
    assert ours[several] == want and type(ours[several]) is list
    assert data.Subset(ours, range(240))[[3, 5]] == [3, 5]
    rows = lt.Dataset(tokens, cache=root, decode="array", dtype="int32", shape=(2,))
    if len(several):
        assert rows[several].tolist() == [[int(i) % 40, -(int(i) % 40)] for i in several]


@pytest.mark.parametrize("one", [3, True, numpy.int64(3), numpy.array(3), torch.tensor(3), torch.tensor([3])], ids=repr)
def test_one(folder, root, one):
    assert lt.Dataset(folder.root, index, cache=root)[one] == int(one)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("loader", [lt.DataLoader, data.DataLoader])
def test_batches_of_a_sampler(folder, tokens, root, loader, workers):
    """torch's documented way to load a batch at once."""
    def batches(dataset):
        sampler = data.BatchSampler(data.SequentialSampler(dataset), 16, False)
        return list(loader(dataset, batch_size=None, sampler=sampler, num_workers=workers))

    rows = batches(lt.Dataset(tokens, cache=root, decode="array", dtype="int32", shape=(2,)))
    assert [batch.shape for batch in rows] == [(16, 2), (16, 2), (8, 2)] and all(type(batch) is torch.Tensor for batch in rows)
    assert [i for batch in rows for i in batch[:, 0].tolist()] == list(range(40))
    assert batches(lt.Dataset(folder.root, index, cache=root))[1] == list(range(16, 32))


def test_batches_of_our_sampler(folder, root):
    """Its order is pushed, and its batches have their positions."""
    ours = lt.Dataset(folder.root, index, cache=root)
    sampler = lt.BatchSampler(data.RandomSampler(ours, generator=torch.Generator().manual_seed(3)), 16, False, dataset=ours)
    loader = data.DataLoader(ours, batch_size=None, sampler=sampler)
    for _ in range(2):
        assert sorted(i for batch in loader for i in batch) == list(range(240))
        assert sampler.order_ahead.exact


@pytest.mark.parametrize("wrong, kind", [
    (240, IndexError), (-241, IndexError), (2**70, IndexError), (1.7, TypeError), ("1", TypeError), (None, TypeError), (slice(3), TypeError), ((3, 5), TypeError),
    ([3, 240], IndexError), ([3, 1.5], TypeError), (["3"], TypeError), (torch.tensor(1.0), TypeError), (torch.tensor([1.0]), TypeError),
    (numpy.array([1.0]), TypeError), ([True, False], TypeError), (torch.tensor([True, False]), TypeError), (numpy.array([True]), TypeError), ([[3]], TypeError),
], ids=repr)
def test_wrong(folder, root, wrong, kind):
    ours = lt.Dataset(folder.root, index, cache=root)
    with pytest.raises(kind) as raised:
        ours[wrong]
    assert type(raised.value) is kind and ("index" in str(raised.value) or "integer" in str(raised.value))
    assert ours[3] == 3


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("loader", [lt.DataLoader, data.DataLoader])
@pytest.mark.parametrize("sampler, kind", [([0, 240], IndexError), ([0, -241], IndexError), ([0, 1.7], TypeError), (["1"], TypeError)])
def test_wrong_in_a_loader(folder, root, loader, workers, sampler, kind):
    ours = lt.Dataset(folder.root, index, cache=root)
    with pytest.raises(kind) as raised:
        list(loader(ours, 2, sampler=sampler, num_workers=workers))
    assert type(raised.value) is kind
