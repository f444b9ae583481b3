"""The order of any sampler is predicted and pushed, without a change to the sampler or to a random state."""

import logging
import random

import pytest
from embedded_servers import folder, patient, pushed, root  # noqa: F401

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)
numpy = pytest.importorskip("numpy", reason="numpy is not installed")

from torch.utils import data  # noqa: E402

import lcache.torch as lt  # noqa: E402
from lcache.torch._order.sampler_copy import RandomStates  # noqa: E402

EPOCHS = 3


def index(_, sample):
    return sample.index


class Plain(data.Dataset):
    """The dataset of the reference."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return i


class Own(data.Sampler):
    """A user's sampler: it draws from its own generator of some kind, and its order changes from epoch to epoch."""

    def __init__(self, n, draw):
        self.n, self.draw, self.epochs = n, draw, 0

    def __len__(self):
        return self.n

    def __iter__(self):
        order = list(range(self.n))
        self.draw.shuffle(order)
        self.epochs += 1
        yield from order[self.epochs :] + order[: self.epochs]


class Buckets(data.Sampler):
    """A batch sampler with batches of any sizes."""

    def __init__(self, n, generator):
        self.n, self.generator = n, generator

    def __iter__(self):
        order = torch.randperm(self.n, generator=self.generator).tolist()
        at, size = 0, 1
        while at < self.n:
            yield order[at : at + size]
            at, size = at + size, size % 13 + 1


def torch_generator():
    return torch.Generator().manual_seed(9)


SAMPLERS = {
    "sequential": lambda d: data.SequentialSampler(d),
    "random": lambda d: data.RandomSampler(d, generator=torch_generator()),
    "random, default generator": lambda d: data.RandomSampler(d),
    "replacement": lambda d: data.RandomSampler(d, replacement=True, num_samples=300, generator=torch_generator()),
    "num_samples": lambda d: data.RandomSampler(d, num_samples=100, generator=torch_generator()),
    "subset": lambda d: data.SubsetRandomSampler(range(5, 200, 3), generator=torch_generator()),
    "weighted": lambda d: data.WeightedRandomSampler([1 + i % 7 for i in range(len(d))], 150, generator=torch_generator()),
    "distributed": lambda d: data.DistributedSampler(d, 3, 1, seed=4),
    "random.Random": lambda d: Own(len(d), random.Random(3)),
    "numpy.Generator": lambda d: Own(len(d), numpy.random.default_rng(3)),
    "numpy.RandomState": lambda d: Own(len(d), numpy.random.RandomState(3)),
    "python global": lambda d: Own(len(d), random),
    "list": lambda d: list(range(0, len(d), 2)),
}
GLOBAL = ("python global",)


def run(loader, sampler):
    """Yields epochs of batches. Between them the user draws from global generators."""
    torch.manual_seed(1)
    random.seed(1)
    epochs = []
    for epoch in range(EPOCHS):
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
        epochs.append([batch.tolist() for batch in loader])
        torch.rand(3), random.random()
    return epochs, RandomStates()


def undisturbed(before, after):
    return torch.equal(before._torch, after._torch) and before._python == after._python and (before._numpy[1] == after._numpy[1]).all()


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("name", SAMPLERS)
def test_sampler(folder, root, patient, pushed, name, drop_last):
    theirs = SAMPLERS[name](Plain(len(folder)))
    want, state = run(data.DataLoader(Plain(len(folder)), batch_sampler=data.BatchSampler(theirs, 16, drop_last)), theirs)

    ours = lt.Dataset(folder.root, index, cache=root)
    sampler = SAMPLERS[name](ours)
    batches = lt.BatchSampler(sampler, 16, drop_last, dataset=ours)
    got, after = run(data.DataLoader(ours, batch_sampler=batches), sampler)
    if name == "random, default generator":  # the first epoch's seed is kept, so later epochs are known
        for epoch in range(1, EPOCHS):
            again = data.RandomSampler(ours, generator=torch.Generator().manual_seed(batches.order_ahead.seed() + epoch))
            want[epoch] = list(data.BatchSampler(again, 16, drop_last))
    assert got == want
    assert undisturbed(state, after), "a random state is another one than without lcache"
    assert batches.order_ahead.exact
    rank = 1 if name == "distributed" else 0
    # All epochs were known before they began, unless their order depends on the user's draws.
    assert pushed == [(e, rank) for e in range(EPOCHS + (0 if name in GLOBAL else 2))]
    assert ours.job.stats()["jobs"][0]["divergences"] == 0


def test_generator_is_left_as_torch_leaves_it(folder, root):
    ours = lt.Dataset(folder.root, index, cache=root)
    mine, theirs = torch_generator(), torch_generator()
    a = lt.DataLoader(ours, 16, shuffle=True, generator=mine)
    b = data.DataLoader(Plain(len(folder)), 16, shuffle=True, generator=theirs)
    for _ in range(EPOCHS):
        assert [x.tolist() for x in a] == [x.tolist() for x in b]
        assert torch.equal(mine.get_state(), theirs.get_state())


def test_batches_of_any_sizes(folder, root, patient):
    ours = lt.Dataset(folder.root, index, cache=root)
    loader = lt.watch(data.DataLoader(ours, batch_sampler=Buckets(len(ours), torch_generator()), num_workers=2))
    reference = data.DataLoader(Plain(len(ours)), batch_sampler=Buckets(len(ours), torch_generator()))
    for _ in range(EPOCHS):
        assert [x.tolist() for x in loader] == [x.tolist() for x in reference]
        assert loader.batch_sampler.order_ahead.exact
    assert ours.job.stats()["jobs"][0]["divergences"] == 0


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("broken_off", [0, 1, 5, 14])
def test_breaking_off_changes_nothing(folder, root, workers, broken_off):
    """Epoch e has the order that torch has after complete earlier epochs."""
    reference = data.DataLoader(Plain(len(folder)), 16, shuffle=True, generator=torch.Generator().manual_seed(2))
    want = [[x.tolist() for x in reference] for _ in range(EPOCHS)]
    ours = lt.Dataset(folder.root, index, cache=root)
    loader = lt.DataLoader(ours, 16, shuffle=True, seed=2, num_workers=workers)
    iterator = iter(loader)
    assert [next(iterator).tolist() for _ in range(broken_off)] == want[0][:broken_off]
    del iterator
    first = 0 if not (broken_off or workers) else 1  # no batch was requested, so it is not an epoch
    for epoch in range(first, EPOCHS):
        assert [x.tolist() for x in loader] == want[epoch]
    loader.set_epoch(1)
    assert [x.tolist() for x in loader] == want[1]


def test_a_generator_that_the_user_sets_again(folder, root):
    ours = lt.Dataset(folder.root, index, cache=root)
    mine, theirs = torch_generator(), torch_generator()
    a = lt.DataLoader(ours, 16, shuffle=True, generator=mine)
    b = data.DataLoader(Plain(len(folder)), 16, shuffle=True, generator=theirs)
    for seed in (3, 3, 8):
        mine.manual_seed(seed), theirs.manual_seed(seed)
        assert [x.tolist() for x in a] == [x.tolist() for x in b]


@pytest.mark.parametrize("workers", [0, 2])
def test_subset(folder, root, workers):
    ours = lt.Dataset(folder.root, index, cache=root)
    subset = data.Subset(data.Subset(ours, range(0, 240, 2)), range(100, 10, -1))
    loader = lt.DataLoader(subset, 8, shuffle=True, seed=1, num_workers=workers)
    reference = data.DataLoader([subset.dataset.indices[i] for i in subset.indices], 8, shuffle=True, generator=torch.Generator().manual_seed(1))
    for epoch in range(20):
        assert [x.tolist() for x in loader] == [x.tolist() for x in reference]
        status = ours.job.stats()["jobs"][0]
        # One request for each batch, with its position.
        assert status["divergences"] == 0 and status["chunks_delivered"] == (epoch + 1) * len(loader)
        if epoch >= EPOCHS - 1 and not any(e["misses"] for e in status["epochs_done"] if e["epoch"] == epoch):
            break  # the log is laid out for the pushed orders, which takes longer than epochs of milliseconds
    else:
        pytest.fail("every epoch has misses")
    assert None not in [e["order_digest"] for e in status["epochs_done"]], "a batch came without its place"


def label_and_size(raw, sample):
    return sample.label, len(raw)


@pytest.mark.parametrize("workers", [0, 2])
def test_concat(folder, root, workers):
    tree = lt.Dataset(folder.root, label_and_size, cache=root)
    flat = lt.Dataset(folder.root, label_and_size, cache=root, flat=True)
    both = data.ConcatDataset([tree, data.Subset(flat, range(50)), tree])
    loader = lt.DataLoader(both, 16, shuffle=True, seed=1, num_workers=workers)
    plain = [label_and_size(folder.contents[i], type("S", (), {"label": folder.labels[i]})) for i in range(240)]
    names = flat.job.names(range(50))
    sizes = {path.rsplit("/", 1)[1]: len(raw) for (path, _), raw in zip(folder.files, folder.contents)}
    plain = plain + [(0, sizes[name.rsplit("/", 1)[-1]]) for name in names] + plain
    reference = data.DataLoader(plain, 16, shuffle=True, generator=torch.Generator().manual_seed(1))
    for _ in range(2):
        got = [(a.tolist(), b.tolist()) for a, b in loader]
        assert got == [(a.tolist(), b.tolist()) for a, b in reference]
    for part in (tree, flat):
        status = part.job.stats()["jobs"][0]
        assert status["divergences"] == 0
        assert status["chunks_delivered"] <= 2 * len(loader), "one request a batch, not one a sample"


class Reversed(data.Dataset):
    """Requests other samples than those requested from it."""

    def __init__(self, below):
        self.below = below

    def __len__(self):
        return len(self.below)

    def __getitem__(self, i):
        return self.below[len(self) - 1 - i]


class Doubled(Reversed):
    """Has another length, so its indices certainly differ."""

    def __len__(self):
        return 2 * len(self.below)

    def __getitem__(self, i):
        return self.below[i // 2]


class Same(Reversed):
    def __getitem__(self, i):
        return self.below[i]


class SameAtOnce(Same):
    def __getitems__(self, indices):
        return self.below.__getitems__(indices)


class SameLists(Same):
    def __getitems__(self, indices):
        return self.below.__getitems__([i for i in indices])


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("wrapper", [Reversed, Doubled])
def test_wrapper_that_does_not_agree(folder, root, caplog, pushed, wrapper, workers):
    ours = lt.Dataset(folder.root, index, cache=root)
    wrapped = wrapper(ours)
    loader = lt.DataLoader(wrapped, 16, num_workers=workers)
    for _ in range(2):
        assert [i for batch in loader for i in batch.tolist()] == [wrapped[i] for i in range(len(wrapped))]
    assert caplog.text.count("orders are not pushed") == 1 and not pushed


@pytest.mark.parametrize("dataset", [data.TensorDataset(torch.arange(32)), data.Subset(range(40), range(8, 40)), list(range(32))])
def test_a_dataset_of_others(caplog, dataset):
    """A loader over a dataset without lcache works like torch's, and logs no warning."""
    caplog.set_level(logging.INFO, "lcache")
    loader = lt.DataLoader(dataset, 16)
    for _ in range(2):
        assert sum(1 for _ in loader) == 2
    assert {r.levelname for r in caplog.records} == {"INFO"} and caplog.text.count(f"{type(dataset).__name__} contains no lcache dataset") == 1


class Parts(data.Dataset):
    """Holds its dataset where only a search finds it."""

    def __init__(self, below):
        self.parts = {"train": [(1.0, Reversed(below))]}

    def __len__(self):
        return len(self.parts["train"][0][1])

    def __getitem__(self, i):
        return self.parts["train"][0][1][i]


def test_a_dataset_is_found_in_parts(folder, root, caplog):
    loader = lt.DataLoader(Parts(lt.Dataset(folder.root, index, cache=root)), 16)
    assert [i for batch in loader for i in batch.tolist()] == list(range(239, -1, -1))
    assert caplog.text.count("the dataset Parts changes indices in an unknown way") == 1


class Named(Reversed):
    """Is indexed by names."""

    def __getitem__(self, name):
        return self.below[int(name[1:])]


def test_wrapper_that_is_not_asked_for_indices(folder, root, caplog):
    ours = lt.Dataset(folder.root, index, cache=root)
    loader = lt.DataLoader(Named(ours), 16, sampler=[f"n{i}" for i in range(240)])
    for _ in range(2):
        assert [i for batch in loader for i in batch.tolist()] == list(range(240))
    assert caplog.text.count("orders are not pushed") == 1


@pytest.mark.parametrize("method, workers", [(None, 0), ("fork", 2), ("spawn", 1)])
@pytest.mark.parametrize("wrapper", [Same, SameAtOnce, SameLists])
def test_wrapper_that_agrees(folder, root, caplog, pushed, wrapper, method, workers):
    """The order is pushed as soon as the first batch shows that the dataset passes the sampler's indices on."""
    if method == "spawn" and wrapper is not Same:
        pytest.skip("one wrapper is enough to see that it gets through")
    ours = lt.Dataset(folder.root, index, cache=root)
    subset = data.Subset(wrapper(ours), range(230, -1, -1))
    loader = lt.DataLoader(subset, 16, shuffle=True, seed=1, num_workers=workers, multiprocessing_context=method, persistent_workers=method == "spawn")
    persistent = {"num_workers": workers, "persistent_workers": True} if method == "spawn" else {}
    reference = data.DataLoader(range(230, -1, -1), 16, shuffle=True, generator=torch.Generator().manual_seed(1), **persistent)
    for _ in range(EPOCHS):
        assert [x.tolist() for x in loader] == [x.tolist() for x in reference]
    assert pushed == [(epoch, 0) for epoch in range(EPOCHS + 2)]
    status = ours.job.stats()["jobs"][0]
    assert status["divergences"] == 0 and status["chunks_delivered"] == EPOCHS * len(loader), "one request a batch"
    last = [e for e in status["epochs_done"] if e["epoch"] == EPOCHS - 1]
    assert [e["order_digest"] is None for e in last] == [False], "its batches came without their places"
    assert not caplog.records


def test_two_loaders_over_one_dataset(folder, root):
    """The first loader owns the order. The other one is served by index, and has no effect on the first."""
    ours = lt.Dataset(folder.root, index, cache=root)
    train, check = lt.DataLoader(ours, 16, shuffle=True, seed=1), lt.DataLoader(ours, 16)
    for _ in range(EPOCHS):
        list(train)
        assert [i for batch in check for i in batch.tolist()] == list(range(240))
    assert ours.job.stats()["jobs"][0]["divergences"] == 0


def test_decode(folder, root):
    ours = lt.Dataset(folder.root, lambda raw, sample: (raw, tuple(sample), len(sample), sample[1]), cache=root)
    raw, (number, name, label, parts), four, again = ours[33]
    assert (raw, number, label, parts, four) == (folder.contents[33], 33, folder.labels[33], {"": folder.contents[33]}, 4)
    assert folder.files[33][0] == f"{folder.root}/{name}" and again == name
    assert lt.Dataset(folder.root, cache=root)[33] == (folder.contents[33], folder.labels[33])
