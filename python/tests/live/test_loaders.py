"""torch's DataLoader and torchdata's StatefulDataLoader, with and without workers."""

import pytest

from harness import Check

torch = pytest.importorskip("torch")


class Indices(torch.utils.data.Dataset):
    """A dataset whose samples are their own indices."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return i


def flat(batch):
    return batch.tolist() if hasattr(batch, "tolist") and batch.ndim else [int(batch)]


def epoch_of(loader):
    """The indices of one iteration."""
    return [i for batch in loader for i in flat(batch)]


def abandon(loader, taken):
    """Takes a number of batches, and leaves the epoch."""
    it = iter(loader)
    for _ in range(taken):
        next(it)
    del it


def compare(check, Loader, recipe, n, seed, batch_size, drop_last, workers, persistent, own, leave=()):
    what = dict(n=n, seed=seed, batch_size=batch_size, drop_last=drop_last, num_workers=workers, persistent_workers=persistent, generator="explicit" if own else "default")
    torch.manual_seed(seed)
    g = torch.Generator().manual_seed(seed) if own else None
    try:
        loader = Loader(Indices(n), batch_size=batch_size, shuffle=True, drop_last=drop_last, num_workers=workers, persistent_workers=persistent, generator=g)
    except ValueError as e:
        check.refused(e, recipe, **what)
        return
    if leave:
        what["abandoned"] = [list(pair) for pair in leave]
    leave = dict(leave)
    for epoch in range(3 if not leave else max(leave) + 2):
        if epoch in leave:
            abandon(loader, leave[epoch])
        else:
            check.same(epoch_of(loader), recipe, epoch=epoch, **what)


def edges(check, Loader, recipe):
    for own in (False, True):
        for n, batch, drop in [(1, 1, False), (2, 4, True), (22, 4, False), (24, 4, True), (7, None, False), (1009, 32, True), (0, 4, False), (9, None, True)]:
            compare(check, Loader, recipe, n, 42, batch, drop, 0, False, own)
        compare(check, Loader, recipe, 22, 42, 4, False, 0, True, own)


def random_case(check, workers):
    n = check.size(3000) if not workers else check.rng.randrange(1, 60)
    batch = check.rng.choice([1, 2, 4, 7, 32, 256]) if n < 400 or workers else check.rng.choice([32, 256])
    return n, check.seed(), batch, check.rng.random() < 0.5


def test_dataloader():
    with Check("torch.dataloader", share=2) as check:
        edges(check, torch.utils.data.DataLoader, "torch.dataloader")
        for _ in check.random_cases():
            n, seed, batch, drop = random_case(check, 0)
            compare(check, torch.utils.data.DataLoader, "torch.dataloader", n, seed, batch, drop, 0, False, check.rng.random() < 0.6)


def test_dataloader_workers():
    with Check("torch.dataloader, workers", share=3) as check:
        for own in (False, True):
            for persistent in (False, True):
                compare(check, torch.utils.data.DataLoader, "torch.dataloader", 22, 42, 4, False, 2, persistent, own)
        for _ in check.random_cases():
            n, seed, batch, drop = random_case(check, 2)
            compare(check, torch.utils.data.DataLoader, "torch.dataloader", n, seed, batch, drop, check.rng.choice([1, 2]), check.rng.random() < 0.5, check.rng.random() < 0.6)


def leave_early(check, workers):
    n, batch, drop = check.rng.randrange(1, 40), check.rng.choice([1, 2, 4, 7]), check.rng.random() < 0.5
    batches = n // batch if drop else -(-n // batch)
    leave = [(e, check.rng.randrange(batches + 1)) for e in sorted(check.rng.sample(range(3), check.rng.choice([1, 2])))]
    persistent = bool(workers) and check.rng.random() < 0.5
    compare(check, torch.utils.data.DataLoader, "torch.dataloader", n, check.seed(), batch, drop, workers, persistent, check.rng.random() < 0.7, leave)


def test_dataloader_abandoned():
    with Check("torch.dataloader, epochs left early", share=3) as check:
        for taken in range(7):
            for drop in (False, True):
                compare(check, torch.utils.data.DataLoader, "torch.dataloader", 22, 42, 4, drop, 0, False, True, [(0, min(taken, 5 if drop else 6))])
        for _ in range(4):
            leave_early(check, 2)
        for _ in check.random_cases():
            leave_early(check, 0)


def test_stateful_dataloader():
    pytest.importorskip("torchdata")
    from torchdata.stateful_dataloader import StatefulDataLoader

    with Check("torchdata.stateful_dataloader", share=3) as check:
        edges(check, StatefulDataLoader, "torchdata.stateful_dataloader")
        for own in (False, True):
            for persistent in (False, True):
                compare(check, StatefulDataLoader, "torchdata.stateful_dataloader", 22, 42, 4, False, 2, persistent, own)
        for _ in check.random_cases():
            n, seed, batch, drop = random_case(check, 0)
            compare(check, StatefulDataLoader, "torchdata.stateful_dataloader", n, seed, batch, drop, 0, False, check.rng.random() < 0.6)
