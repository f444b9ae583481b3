"""A watched StatefulDataLoader of torchdata continues from a state exactly as it does without watch()."""

import inspect

import pytest
from embedded_servers import folder, root  # noqa: F401

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)
pytest.importorskip("torchdata")

from torch.utils import data  # noqa: E402
from torchdata.stateful_dataloader import StatefulDataLoader, sampler as theirs  # noqa: E402

import lcache  # noqa: E402
import lcache.torch as lt  # noqa: E402

SIZE = 16


def index(_, sample):
    return sample.index


class Plain(data.Dataset):
    """Its state includes the global random state, which is restored with it."""

    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return self.samples

    def __getitem__(self, i):
        return i

    def state_dict(self):
        return {"random": torch.get_rng_state()}

    def load_state_dict(self, state):
        torch.set_rng_state(state["random"])


class Ours(lt.Dataset):
    state_dict, load_state_dict = Plain.state_dict, Plain.load_state_dict


class Numbered(data.Sampler):
    """A batch sampler that has a state itself, and whose iterators have none."""

    def __init__(self, samples):
        self.samples, self.done = samples, 0

    def __len__(self):
        return self.samples // SIZE

    def __iter__(self):
        while self.done < len(self):
            self.done += 1
            yield list(range((self.done - 1) * SIZE, self.done * SIZE))
        self.done = 0

    def state_dict(self):
        return {"done": self.done}

    def load_state_dict(self, state):
        self.done = state["done"]


class Eager(theirs.BatchSampler):
    """A batch sampler of another class, whose iterators are torchdata's."""

    def __iter__(self):
        return super().__iter__()


SAMPLERS = {
    "torch's, no generator": lambda d: {"sampler": data.RandomSampler(d), "batch_size": SIZE},
    "torch's, a generator": lambda d: {"sampler": data.RandomSampler(d, generator=torch.Generator().manual_seed(3)), "batch_size": SIZE},
    "in order": lambda d: {"sampler": data.SequentialSampler(d), "batch_size": SIZE},
    "torchdata's, no generator": lambda d: {"shuffle": True, "batch_size": SIZE},
    "torchdata's, a generator": lambda d: {"shuffle": True, "batch_size": SIZE, "generator": torch.Generator().manual_seed(3)},
    "torchdata's, with replacement": lambda d: {"sampler": theirs.RandomSampler(d, replacement=True), "batch_size": SIZE},
    "distributed": lambda d: {"sampler": theirs.StatefulDistributedSampler(d, 2, 1, seed=4), "batch_size": SIZE},
    "torch's batches": lambda d: {"batch_sampler": data.BatchSampler(data.SequentialSampler(d), SIZE, True)},
    "a subclass": lambda d: {"batch_sampler": Eager(data.RandomSampler(d), SIZE, False)},
    "a state, but none of its iterators": lambda d: {"batch_sampler": Numbered(len(d))},
}

DRAW_A_SEED = ("torch's, no generator", "a subclass")  # lcache keeps the first seed


def lists(loader, limit=None):
    found = []
    for batch in loader:
        found.append(batch.tolist())
        if len(found) == limit:
            break
    return found


def interrupted(build, batches, workers):
    """An epoch that two loaders read in two parts, and the next epoch. Also everything that a third loader reads from the same state."""
    first = build(workers)
    iterator = iter(first)
    begun = [next(iterator).tolist() for _ in range(batches)]
    state = first.state_dict()
    rest = [batch.tolist() for batch in iterator]
    found = [begun, rest]
    for seed in (11, 12):
        torch.manual_seed(seed)
        again = build(workers)
        again.load_state_dict(state)
        found.append([lists(again), lists(again)])
    return found, again


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("batches", [0, 1, 5])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_resume(folder, root, sampler, batches, workers):
    def plain(workers):
        dataset = Plain(len(folder))
        return StatefulDataLoader(dataset, num_workers=workers, **SAMPLERS[sampler](dataset))

    def ours(workers):
        dataset = Ours(folder.root, index, cache=root)
        return lt.watch(StatefulDataLoader(dataset, num_workers=workers, **SAMPLERS[sampler](dataset)))

    # With workers torchdata makes two iterators for one epoch, so a sampler that draws in its iterator's constructor draws twice. lcache's order does not depend on workers.
    torch.manual_seed(7)
    want, _ = interrupted(plain, batches, 0)
    torch.manual_seed(7)
    got, loader = interrupted(ours, batches, workers)
    assert got[:2] == want[:2]
    for restored, expected in zip(got[2:], want[2:]):
        if batches or not workers or sampler not in DRAW_A_SEED:  # a state does not have a seed that was not yet drawn
            assert restored[0] == want[1]
        if expected[0] == want[1] and sampler not in DRAW_A_SEED:
            assert restored[1] == expected[1]
    assert loader.batch_sampler.order_ahead.exact in (True, None)


@pytest.mark.parametrize("workers", [0, 2])
def test_drawn_seed_of_a_later_epoch(folder, root, workers):
    """The order is determined by a seed that was drawn in the first epoch. A state of the second epoch has the seed."""

    def build():
        dataset = lt.Dataset(folder.root, index, cache=root)
        return lt.watch(StatefulDataLoader(dataset, SIZE, sampler=data.RandomSampler(dataset), num_workers=workers))

    torch.manual_seed(7)
    loader = build()
    lists(loader)
    iterator = iter(loader)
    for _ in range(4):
        next(iterator)
    state = loader.state_dict()
    rest = [batch.tolist() for batch in iterator]
    end = loader.state_dict()
    third = lists(loader)
    torch.manual_seed(8)
    again = build()
    again.load_state_dict(state)
    assert [lists(again), lists(again)] == [rest, third]
    assert again.batch_sampler.order_ahead.exact
    again.load_state_dict(state)
    assert lists(again, 2) == rest[:2]
    again.load_state_dict(state)
    assert lists(again) == rest
    behind = build()
    behind.load_state_dict(end)
    assert lists(behind) == third


@pytest.mark.parametrize("sampler", ["torch's, no generator", "torchdata's, no generator"])
def test_state_with_and_without_watch(folder, root, sampler):
    """A state that was saved with watch() can be loaded without it, and vice versa."""

    def build(watched):
        dataset = Ours(folder.root, index, cache=root) if watched else Plain(len(folder))
        loader = StatefulDataLoader(dataset, **SAMPLERS[sampler](dataset))
        return lt.watch(loader) if watched else loader

    for saves, loads in ((True, False), (False, True)):
        torch.manual_seed(7)
        loader = build(saves)
        iterator = iter(loader)
        for _ in range(4):
            next(iterator)
        state = loader.state_dict()
        rest = [batch.tolist() for batch in iterator]
        torch.manual_seed(7)
        again = build(loads)
        again.load_state_dict(state)
        assert lists(again) == rest


def test_random_numbers_stay_as_without_watch(folder, root):
    """Other code that draws from torch's default generator gets the same numbers, even after a resume."""

    def numbers(watched):
        torch.manual_seed(7)
        found, state = [], None
        for batches in (3, None):
            dataset = lt.Dataset(folder.root, index, cache=root)
            loader = StatefulDataLoader(dataset, SIZE, sampler=data.RandomSampler(dataset))
            loader = lt.watch(loader) if watched else loader
            if state is not None:
                loader.load_state_dict(state)
            for count, _ in enumerate(loader, 1):
                found.append(torch.rand(1).item())
                if count == batches:
                    break
            state = loader.state_dict()
        return found

    assert numbers(True) == numbers(False)


def test_a_batch_samplers_state_is_a_method_of_the_class(folder, root):
    """torchdata checks for the methods as Python 3.12 does."""
    dataset = lt.Dataset(folder.root, index, cache=root)
    loader = lt.watch(StatefulDataLoader(dataset, batch_sampler=Numbered(len(dataset))))
    assert callable(inspect.getattr_static(loader.batch_sampler, "state_dict"))
    other = lt.watch(StatefulDataLoader(dataset, SIZE, shuffle=True))
    assert inspect.getattr_static(other.batch_sampler, "state_dict", None) is None


def test_refused(folder, root):
    dataset = lt.Dataset(folder.root, index, cache=root)
    loader = lt.watch(StatefulDataLoader(dataset, SIZE, sampler=data.RandomSampler(dataset)))
    lists(loader, 2)
    state = loader.state_dict()
    for wrong in ({"seed": "x", "epoch": 0}, {"seed": 1, "epoch": -1}, {"seed": 1}):
        state["_sampler_iter_state"]["lcache"] = wrong
        loader.load_state_dict(state)
        with pytest.raises(lcache.Error, match="load the loader's state: its (seed|epoch)"):
            iter(loader)
