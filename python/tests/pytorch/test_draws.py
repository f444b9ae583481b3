"""The two changed lines have no side effects: lcache draws the same numbers from global generators as torch's own loader, at the same moments."""

import json
import os
import random
import subprocess
import sys

import pytest
from embedded_servers import folder, patient, root  # noqa: F401

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)
numpy = pytest.importorskip("numpy", reason="numpy is not installed")

from torch.utils import data  # noqa: E402

import lcache  # noqa: E402
import lcache.torch as lt  # noqa: E402

SIZE, EPOCHS = 32, 3
BROKEN = 1  # the loop leaves this epoch after its first batch


def index(_, sample):
    return sample.index


class Plain(data.Dataset):
    """The dataset for torch's own loader."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return i


class Watch:
    """Counts the seeds that were drawn from torch's default generator since the last call of look(). Python's and numpy's generators must not change."""

    def __init__(self):
        self.seen = torch.get_rng_state()
        self.others = random.getstate(), repr(numpy.random.get_state())

    def look(self):
        assert self.others == (random.getstate(), repr(numpy.random.get_state()))
        twin, now = torch.Generator(), torch.get_rng_state()
        twin.set_state(self.seen)
        self.seen = now
        for draws in range(4):
            if torch.equal(twin.get_state(), now):
                return draws
            torch.empty((), dtype=torch.int64).random_(generator=twin)
        raise AssertionError("something else was drawn than seeds")


def moments(make):
    """Returns the draws when a loader is made, when an epoch begins, at its first batch and until its end, the weights of a model that is made at each
    of these moments, and the epochs."""
    torch.manual_seed(3)
    watch, draws, weights, epochs = Watch(), [], [], []

    def look():
        draws[-1] += (watch.look(),)
        with torch.random.fork_rng():
            weights.append(torch.rand(()).item())

    draws.append(())
    loader = make()
    look()
    for epoch in range(EPOCHS):
        draws.append(())
        iterator = iter(loader)
        look()
        batches = [next(iterator).tolist()]
        look()
        if epoch != BROKEN:
            batches += [batch.tolist() for batch in iterator]
        del iterator
        look()
        epochs.append(batches)
    return draws, weights, epochs


def table(first, later):
    return [(0,), first, *[later] * (EPOCHS - 1)]


NONE = table((0, 0, 0), (0, 0, 0))
# (shuffle, workers, persistent): seeds drawn at iter(), at the first batch, and until the epoch's end; in the first epoch and in each later one.
DRAWS = {
    (False, 0, False): table((1, 0, 0), (1, 0, 0)),
    (False, 2, False): table((1, 0, 0), (1, 0, 0)),
    (False, 2, True): table((1, 0, 0), (0, 0, 0)),
    (True, 0, False): table((1, 1, 0), (1, 1, 0)),
    (True, 2, False): table((2, 0, 0), (2, 0, 0)),  # the workers' first batches are drawn at once
    (True, 2, True): table((2, 0, 0), (1, 0, 0)),
}


@pytest.mark.parametrize("given", ["nothing", "generator", "seed", "sampler", "watched", "batch sampler"])
@pytest.mark.parametrize("shuffle, workers, persistent", DRAWS)
def test_draws_are_those_of_torch(folder, root, shuffle, workers, persistent, given):
    more = {"num_workers": workers, "persistent_workers": persistent}
    ours, plain = lt.Dataset(folder.root, index, cache=root), Plain(len(folder))
    kind = data.RandomSampler if shuffle else data.SequentialSampler

    def theirs():
        generator = torch.Generator().manual_seed(7) if given in ("generator", "seed") else None
        return data.DataLoader(plain, SIZE, shuffle=shuffle, generator=generator, **more)

    def mine():
        if given == "watched":
            return lt.watch(data.DataLoader(ours, SIZE, shuffle=shuffle, **more))
        if given == "batch sampler":
            return data.DataLoader(ours, batch_sampler=lt.BatchSampler(kind(ours), SIZE, False), **more)
        if given == "sampler":
            return lt.DataLoader(ours, SIZE, sampler=kind(ours), **more)
        said = {"generator": torch.Generator().manual_seed(7)} if given == "generator" else {"seed": 7} if given == "seed" else {}
        return lt.DataLoader(ours, SIZE, shuffle=shuffle, **said, **more)

    draws, weights, epochs = moments(theirs)
    got_draws, got_weights, got = moments(mine)
    drawn = given not in ("generator", "seed")
    assert draws == (DRAWS[shuffle, workers, persistent] if drawn else NONE), "this torch draws otherwise"
    assert got_draws == draws and got_weights == weights
    assert got[0] == epochs[0]
    if not (shuffle and drawn):
        whole = [e for e in range(BROKEN + 1)] if shuffle else range(EPOCHS)  # after an epoch that was left early, a generator has another state
        assert [got[e] for e in whole] == [epochs[e] for e in whole]
    assert [sorted(i for batch in got[e] for i in batch) for e in range(EPOCHS) if e != BROKEN] == [list(range(len(folder)))] * (EPOCHS - 1)


def lists(loader):
    return [batch.tolist() for batch in loader]


def orders(loader, epochs=3):
    return [[i for batch in lists(loader) for i in batch] for _ in range(epochs)]


def drawn(folder, root, **more):
    return lt.DataLoader(lt.Dataset(folder.root, index, cache=root), SIZE, shuffle=True, **more)


@pytest.mark.parametrize("workers", [0, 2])
def test_every_epoch_follows_from_the_first_seed(folder, root, workers):
    """Epoch e has torch's order with the seed of the first epoch + e, whatever else is drawn, and wherever the loop leaves an epoch."""
    torch.manual_seed(11)
    loader = drawn(folder, root, num_workers=workers)
    epochs = []
    for _ in range(3):
        epochs.append([i for batch in lists(loader) for i in batch])
        torch.rand(5)
        next(iter(loader))  # counts as an epoch
    seed = loader.state_dict()["seed"]
    for e, order in zip((0, 2, 4), epochs):
        sampler = data.RandomSampler(range(len(folder)), generator=torch.Generator().manual_seed(seed + e))
        assert order == list(sampler)
    loader.set_epoch(2)
    assert [i for batch in lists(loader) for i in batch] == epochs[1]
    assert loader.generator is None and loader.sampler.generator is None and loader.batch_sampler.order_ahead.exact


def test_loaders_have_orders_of_their_own(folder, root):
    """Two zipped loaders over two datasets, and a loader that is made again."""
    first, second = drawn(folder, root), drawn(folder, root)
    pairs = [(a.tolist(), b.tolist()) for a, b in zip(first, second)]
    assert [a for a, _ in pairs] != [b for _, b in pairs]
    again = drawn(folder, root)
    found = [orders(loader) for loader in (first, second, again)]
    assert len({tuple(order) for epochs in found for order in epochs}) == 9


@pytest.mark.parametrize("given", ["seed", "generator", "watched", "batch sampler"])
def test_persistent_workers(folder, root, given):
    """With persistent workers the order is torch's, in whole epochs and after one that was left early. A resume without them is refused."""
    reference = data.DataLoader(Plain(len(folder)), SIZE, shuffle=True, generator=torch.Generator().manual_seed(5), num_workers=1, persistent_workers=True)
    want = [lists(reference) for _ in range(4)]
    ours, generator = lt.Dataset(folder.root, index, cache=root), torch.Generator().manual_seed(5)
    if given == "watched":
        loader = lt.watch(data.DataLoader(ours, SIZE, shuffle=True, generator=generator, num_workers=1, persistent_workers=True))
    elif given == "batch sampler":
        batches = lt.BatchSampler(data.RandomSampler(ours, generator=generator), SIZE, False)
        loader = data.DataLoader(ours, batch_sampler=batches, generator=generator, num_workers=1, persistent_workers=True)
    else:
        said = {"seed": 5} if given == "seed" else {"generator": generator}
        loader = lt.DataLoader(ours, SIZE, shuffle=True, num_workers=1, persistent_workers=True, **said)
    assert lists(loader) == want[0]
    assert next(iter(loader)).tolist() == want[1][0]
    assert lists(loader) == want[2]
    assert loader.batch_sampler.order_ahead.exact
    loader.batch_sampler.set_epoch(1)
    assert lists(loader) == want[1]
    if given == "batch sampler":
        return
    iterator = iter(loader)
    assert [next(iterator).tolist() for _ in range(2)] == want[2][:2]
    state = json.loads(json.dumps(loader.state_dict()))
    del iterator, loader
    again = lt.DataLoader(ours, SIZE, shuffle=True, seed=5, num_workers=2, persistent_workers=True)
    again.load_state_dict(state)
    assert lists(again) == want[2][2:] and lists(again) == want[3]
    other = lt.DataLoader(ours, SIZE, shuffle=True, seed=5, num_workers=2)
    other.load_state_dict(state)
    with pytest.raises(lcache.Error, match="its order differs from the saved one.*persistent_workers"):
        next(iter(other))


RESUME = """
import json, sys, torch, lcache.torch as lt
from test_draws import Watch, drawn, lists
class Folder: root = sys.argv[1]
loader = drawn(Folder, sys.argv[2])
loader.load_state_dict(json.loads(sys.argv[3]))
watch = Watch()
iterator = iter(loader)
draws = [watch.look()]
rest = [next(iterator).tolist()]
draws.append(watch.look())
rest += [b.tolist() for b in iterator]
print(json.dumps([draws, [rest, lists(loader)]]))
"""


@pytest.mark.parametrize("epoch, batches", [(0, 1), (1, 4)])
def test_resume_in_another_process(folder, root, epoch, batches):
    """The state has the drawn seed. A new process draws as many seeds as it would without the state, and continues the order."""
    torch.manual_seed(5)
    loader = drawn(folder, root)
    for _ in range(epoch):
        lists(loader)
    iterator = iter(loader)
    for _ in range(batches):
        next(iterator)
    state = loader.state_dict()
    assert isinstance(state["seed"], int) and (state["epoch"], state["consumed"]) == (epoch, batches) and state["order_digest"]
    rest = [batch.tolist() for batch in iterator]
    following = lists(loader)
    done = subprocess.run([sys.executable, "-c", RESUME, folder.root, root, json.dumps(state)], stdout=subprocess.PIPE, text=True, check=True)
    draws, got = json.loads(done.stdout)
    assert draws == [1, 1] and got == [rest, following]


def test_state_before_anything_was_drawn(folder, root):
    """The state has no seed yet. The resumed loader draws one at its first batch."""
    loader = drawn(folder, root)
    torch.manual_seed(8)
    watch = Watch()
    state = loader.state_dict()
    assert watch.look() == 0
    assert (state["seed"], state["epoch"], state["consumed"], state["order_digest"]) == (None, 0, 0, None)
    used = drawn(folder, root)
    torch.manual_seed(9)
    before = lists(used)
    for again in (loader, used):
        again.load_state_dict(json.loads(json.dumps(state)))
        torch.manual_seed(8)
        want = lists(data.DataLoader(Plain(len(folder)), SIZE, shuffle=True))
        torch.manual_seed(8)
        assert lists(again) == want != before


def test_a_seed_that_torch_does_not_draw(folder, root):
    loader = drawn(folder, root)
    for seed in (-1, 1 << 63, "7", 1.5):
        with pytest.raises(lcache.Error, match="not one that torch draws"):
            loader.load_state_dict({**loader.state_dict(), "seed": seed})


class Twice(data.Sampler):
    """Iterates over a RandomSampler twice in an epoch, so one seed does not determine its order."""

    def __init__(self, dataset):
        self.sampler = data.RandomSampler(dataset)

    def __iter__(self):
        both = list(self.sampler) + list(self.sampler)
        yield from (both[at : at + SIZE] for at in range(0, len(both), SIZE))


def test_sampler_that_draws_more(folder, root, patient):
    """All epochs have torch's order, and each is predicted when it begins."""
    def epochs(loader):
        torch.manual_seed(2)
        return [lists(loader) for _ in range(2)], torch.get_rng_state().tolist()

    ours = lt.Dataset(folder.root, index, cache=root)
    loader = lt.DataLoader(ours, batch_sampler=Twice(ours))
    assert epochs(loader) == epochs(data.DataLoader(Plain(len(folder)), batch_sampler=Twice(Plain(len(folder)))))
    assert loader.batch_sampler.order_ahead.exact


@pytest.mark.parametrize("replacement, number", [(True, None), (True, 100), (False, 100), (False, 500)])
def test_other_random_samplers(folder, root, replacement, number):
    def first(dataset, kind):
        torch.manual_seed(6)
        loader = kind(dataset, SIZE, sampler=data.RandomSampler(dataset, replacement, number))
        return [lists(loader)], torch.get_rng_state().tolist(), loader

    ours = lt.Dataset(folder.root, index, cache=root)
    want, state, _ = first(Plain(len(folder)), data.DataLoader)
    got, left, loader = first(ours, lt.DataLoader)
    assert (got, left) == (want, state)
    seed = loader.state_dict()["seed"]
    sampler = data.RandomSampler(Plain(len(folder)), replacement, number, generator=torch.Generator().manual_seed(seed + 1))
    assert [i for batch in lists(loader) for i in batch] == list(sampler)
    assert loader.batch_sampler.order_ahead.exact
