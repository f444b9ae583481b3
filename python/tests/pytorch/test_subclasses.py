"""Typical subclasses for torch and torchvision: every loader uses the overridden methods, and a batch is still one request."""

import copy
import os
import pickle
import shutil

import pytest
from embedded_servers import folder, pushed, root  # noqa: F401

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)

from torch.utils import data  # noqa: E402

import lcache  # noqa: E402
import lcache.torch as lt  # noqa: E402

EPOCHS, SIZE = 3, 16


def index(_, sample):
    return sample.index


@pytest.fixture
def requested(monkeypatch):
    """The number of samples in each request of this process."""
    seen, get = [], lcache.job.Job.get
    monkeypatch.setattr(lcache.job.Job, "get", lambda job, indices, *args, **more: (seen.append(len(indices)), get(job, indices, *args, **more))[1])
    return seen


class WithIndex(lt.Dataset):
    """The idiom of ImageFolderWithPaths."""

    def __getitem__(self, index):
        return super().__getitem__(index), index


class Twice(lt.Dataset):
    """Two views of one sample, for contrastive learning."""

    def __getitem__(self, index):
        return super().__getitem__(index), super().__getitem__(index)


class Mixed(lt.Dataset):
    """Mixes in a second sample."""

    def __getitem__(self, index):
        return super().__getitem__(index), super().__getitem__((index + 7) % 240)


class Without(lt.Dataset):
    """torch's way to declare that there is no __getitems__."""

    __getitems__ = None


class OneByOne(lt.Dataset):
    """The example in torch's documentation."""

    def __getitem__(self, index):
        return super().__getitem__(index), index

    def __getitems__(self, indices):
        return [self[index] for index in indices]


class BothWays(lt.Dataset):
    """Two ways to the same samples, each by super()."""

    def __getitem__(self, index):
        return super().__getitem__(index), index

    def __getitems__(self, indices):
        return list(zip(super().__getitems__(indices), indices))


class Above(WithIndex):
    """Extends the base class's result for a batch."""

    def __getitems__(self, indices):
        return [(*sample, "above") for sample in super().__getitems__(indices)]


MADE = {
    WithIndex: lambda i: (i, i), Twice: lambda i: (i, i), Mixed: lambda i: (i, (i + 7) % 240), Without: lambda i: i, OneByOne: lambda i: (i, i),
    BothWays: lambda i: (i, i), Above: lambda i: (i, i, "above"),
}  # fmt: skip


def items(loader):
    return [item for batch in loader for item in batch]


def expected(kind, seed=1, **more):
    reference = data.DataLoader(range(240), SIZE, shuffle=True, generator=torch.Generator().manual_seed(seed), **more)
    return [[MADE[kind](i) for batch in reference for i in batch.tolist()] for _ in range(EPOCHS)]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", list(MADE))
def test_in_a_loader(folder, root, pushed, kind, workers):
    """Batches have the predicted order and its positions."""
    ours = kind(folder.root, index, cache=root)
    loader = lt.DataLoader(ours, SIZE, shuffle=True, seed=1, num_workers=workers, collate_fn=list)
    assert [items(loader) for _ in range(EPOCHS)] == expected(kind)
    assert pushed[:EPOCHS] == [(epoch, 0) for epoch in range(EPOCHS)] and loader.batch_sampler.order_ahead.exact
    status = ours.job.stats()["jobs"][0]
    assert status["divergences"] == 0
    if kind is not Mixed:
        assert status["chunks_delivered"] == EPOCHS * len(loader), "one request a batch"


@pytest.mark.parametrize("kind, each", [(WithIndex, []), (Twice, []), (OneByOne, []), (BothWays, []), (Above, []), (Mixed, [1] * 7)])
def test_one_request_a_batch(folder, root, requested, kind, each):
    """Only samples of other batches are requested alone: the partners of the last seven samples of a batch are in the next one."""
    loader = lt.DataLoader(kind(folder.root, index, cache=root), SIZE, collate_fn=list)
    assert items(loader) == [MADE[kind](i) for i in range(240)]
    assert requested == [SIZE, *each] * len(loader)


@pytest.mark.parametrize("kind", [WithIndex, Twice, Above])
def test_in_other_processes(folder, root, kind):
    """Pickles by the class's name, with its state."""
    ours = kind(folder.root, index, cache=root)
    loader = lt.DataLoader(ours, SIZE, shuffle=True, seed=1, num_workers=1, multiprocessing_context="spawn", collate_fn=list)
    assert items(loader) == expected(kind, num_workers=1)[0]


@pytest.mark.parametrize("loader", [lt.DataLoader, data.DataLoader])
def test_below_wrappers(folder, root, loader, requested):
    ours = WithIndex(folder.root, index, cache=root)
    parts = data.random_split(ours, [100, 140], generator=torch.Generator().manual_seed(4))
    for made, wanted in ((data.Subset(ours, range(239, -1, -2)), range(239, -1, -2)), (parts[1], parts[1].indices)):
        del requested[:]
        assert items(loader(made, SIZE, collate_fn=list)) == [(i, i) for i in wanted]
        assert max(requested) == SIZE and len(requested) == -(-len(made) // SIZE)
    both = data.ConcatDataset([ours, WithIndex(folder.root, index, cache=root)])
    assert items(loader(both, SIZE, collate_fn=list)) == [(i, i) for _ in range(2) for i in range(240)]


@pytest.mark.parametrize("kind", [WithIndex, Twice])
def test_one_by_one_wrappers_request_batches(folder, root, requested, pushed, kind):
    both = data.ConcatDataset([kind(folder.root, index, cache=root)])
    loader = lt.DataLoader(both, SIZE, collate_fn=list)
    for _ in range(2):
        assert items(loader) == [(i, i) for i in range(240)]
    assert requested == [SIZE] * 2 * len(loader) and pushed[:2] == [(0, 0), (1, 0)]


def test_alone_and_copied(folder, root):
    ours = WithIndex(folder.root, index, cache=root)
    ours.extra = {"kept": [1, 2]}
    for dataset in (ours, copy.copy(ours), copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert (dataset[3], dataset[-1], dataset.extra) == ((3, 3), (239, -1), ours.extra)
        assert dataset.__getitems__([5, -2]) == [(5, 5), (238, -2)]
        with pytest.raises(IndexError):
            dataset[240]


class Counting(lt.Dataset):
    """Has a state, and accepts other keys than indices."""

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.asked = []

    def __getitem__(self, key):
        self.asked.append(key)
        number, size = key
        return super().__getitem__(number), size


def test_keys_of_its_own(folder, root):
    ours = Counting(folder.root, index, cache=root)
    keys = [(i, 224 + i % 2) for i in range(40)]
    for loader in (lt.DataLoader(ours, 8, sampler=keys, collate_fn=list), data.DataLoader(ours, 8, sampler=keys, collate_fn=list)):
        assert items(loader) == keys
    assert ours.asked == 2 * keys


class Remapped(lt.Dataset):
    def __getitem__(self, index):
        return super().__getitem__(239 - index)


class Repeated(lt.Dataset):
    def __len__(self):
        return 3 * super().__len__()

    def __getitem__(self, index):
        return super().__getitem__(index % 240)


class Beside(lt.Dataset):
    """Reads the file without lcache."""

    def __getitem__(self, index):
        return index


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind, made", [(Remapped, list(range(239, -1, -1))), (Repeated, 3 * list(range(240))), (Beside, list(range(240)))])
def test_other_samples_than_the_indices(folder, root, pushed, caplog, kind, made, workers):
    """The samples are right, and one warning explains the cost."""
    loader = lt.DataLoader(kind(folder.root, index, cache=root), SIZE, num_workers=workers, collate_fn=list)
    for _ in range(2):
        assert items(loader) == made
    assert not pushed and caplog.text.count("orders are not pushed") == 1


def test_other_samples_are_not_fetched_twice(folder, root, requested):
    loader = lt.DataLoader(Remapped(folder.root, index, cache=root), SIZE, collate_fn=list)
    items(loader)
    assert requested == [SIZE] + [1] * 240


class KeepsSome(lt.Dataset):
    """Keeps its first samples itself."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.mine = {}

    def __getitem__(self, index):
        if index not in self.mine:
            item = super().__getitem__(index)
            if index >= 24:
                return item
            self.mine[index] = item
        return self.mine[index]


def test_samples_of_its_own_memory(folder, root, requested):
    """If the program has some samples itself, at most one batch of the others is read by single requests."""
    loader = lt.DataLoader(KeepsSome(folder.root, index, cache=root), 8, collate_fn=list)
    assert items(loader) == list(range(240)) and requested == [8] * 30
    requested.clear()
    assert items(loader) == list(range(240))
    assert requested.count(1) <= 8 and requested.count(8) >= 26, requested


class Forgiving(KeepsSome):
    """Returns another sample in place of one that can't be read."""

    def __getitem__(self, index):
        try:
            return super().__getitem__(index)
        except OSError:
            return index


def test_a_first_batch_with_samples_of_its_own(tmp_path, folder, root, pushed, caplog):
    """Neither a missing file nor samples that the program has itself stop the pushes of orders."""
    source = shutil.copytree(folder.root, tmp_path / "some")
    ours = Forgiving(source, index, cache=root)
    os.unlink(source / ours.job.names([2])[0])
    ours.mine[1] = 1
    loader = lt.DataLoader(ours, 8, collate_fn=list)
    for _ in range(2):
        assert items(loader) == list(range(240))
    assert pushed and "orders are not pushed" not in caplog.text


class Shorter(lt.Dataset):
    def __len__(self):
        return 50


@pytest.mark.parametrize("workers", [0, 2])
def test_another_length(folder, root, workers):
    ours = Shorter(folder.root, index, cache=root)
    loader = lt.DataLoader(ours, SIZE, shuffle=True, seed=1, num_workers=workers, collate_fn=list)
    assert len(loader) == 4
    for _ in range(2):
        assert sorted(items(loader)) == list(range(50))
    assert loader.batch_sampler.order_ahead.exact and ours[-1] == 239  # as of torchvision's list of samples


class Skipping(lt.Dataset):
    """Returns the next sample in place of one that can't be read."""

    def __getitem__(self, index):
        try:
            return super().__getitem__(index)
        except lcache.SampleError:
            return self[index + 1]


def picky(data, sample):
    if sample.index == 9:
        raise ValueError("a broken header")
    return sample.index


@pytest.mark.parametrize("wrap", [lambda d: d, lambda d: data.ConcatDataset([d])])
def test_a_sample_that_fails_alone(tmp_path, folder, root, wrap):
    """A missing file and a file that can't be decoded are errors of those two samples only, although one request fetched the whole batch."""
    source = shutil.copytree(folder.root, tmp_path / "train")
    ours = Skipping(source, picky, cache=root)
    os.unlink(source / ours.job.names([5])[0])
    loader = lt.DataLoader(wrap(ours), SIZE, collate_fn=list)
    got = items(loader)
    assert got == [{5: 6, 9: 10}.get(i, i) for i in range(240)]


class Failing(lt.Dataset):
    def __getitem__(self, index):
        if index == 20:
            raise self.error
        return super().__getitem__(index)


@pytest.mark.parametrize("error", [KeyError("own"), RuntimeError("own"), IndexError("own")])
def test_its_errors_stay(folder, root, error):
    ours = Failing(folder.root, index, cache=root)
    ours.error = error
    with pytest.raises(type(error), match="own") as raised:
        items(lt.DataLoader(ours, SIZE))
    assert raised.value is error
    assert ours.__getitems__([1, 2]) == [1, 2], "nothing is left of the batch that failed"


class Doubling(lt.Dataset):
    """Writes to its samples."""

    def __getitem__(self, index):
        sample = super().__getitem__(index)
        sample *= 2
        return sample, super().__getitem__(index)


def firsts(views, columns):
    return torch.tensor([[view[0]] for view in views])


@pytest.mark.parametrize("wrap", [lambda d: d, lambda d: data.ConcatDataset([d])])
@pytest.mark.parametrize("more", [{"decode": "array", "dtype": "uint8", "shape": (1,)}, {"decode_batch": firsts}])
def test_samples_of_a_ready_batch_are_private(tmp_path, root, more, wrap):
    """As in torch, a write to a sample does not change another one, although both are rows of one tensor."""
    os.makedirs(tmp_path / "train")
    for i in range(40):
        (tmp_path / "train" / f"{i:02d}").write_bytes(bytes([i]))
    order = [3, 3, 5, 3, 5, 7]
    ours = wrap(Doubling(tmp_path / "train", cache=root, **more))
    for loader in (lt.DataLoader(ours, 6, sampler=order), data.DataLoader(ours, 6, sampler=order)):
        ((doubled, plain),) = list(loader)
        assert doubled.flatten().tolist() == [2 * i for i in order] and plain.flatten().tolist() == order
        assert type(doubled) is torch.Tensor


class Decoding(lt.Dataset):
    def decode(self, data, sample):
        return len(data) + self.more, sample.index


class DecodingBatches(lt.Dataset):
    def decode_batch(self, views, columns):
        return [(len(view) + self.more, index) for view, index in zip(views, columns.indices)]


@pytest.mark.parametrize("kind", [Decoding, DecodingBatches])
@pytest.mark.parametrize("workers", [0, 1])
def test_decode_is_a_method(folder, root, kind, workers):
    ours = kind(folder.root, cache=root)
    ours.more = 1000
    want = [(len(raw) + 1000, i) for i, raw in enumerate(folder.contents)]
    assert items(lt.DataLoader(ours, SIZE, num_workers=workers, collate_fn=list)) == want
    assert [ours[i] for i in (0, -1)] == [want[0], want[-1]]
    given = kind(folder.root, index, cache=root)
    assert given[3] == 3, "an argument comes first"
