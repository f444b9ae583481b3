"""Records orders of the installed frameworks for which the vectors have no case, in the vectors' format, for the Go tests:

    python python/tests/live/record.py > shuffle/testdata/recorded.json

With torch 1.10 or older it records the samplers of that release instead, for recorded-torch-<release>.json.
"""

import array
import hashlib
import json
import sys

import torch

from test_torch_legacy import RELEASE, SEMANTICS

if RELEASE >= (1, 11):
    import accelerate
    import timm
    from accelerate.data_loader import BatchSamplerShard, SeedableRandomSampler, prepare_data_loader
    from timm.data.distributed_sampler import RepeatAugSampler

    from test_loaders import abandon, epoch_of

data = torch.utils.data
CASES = []


def record(recipe, version, epochs, **params):
    """Adds a case. epochs yields pairs (epoch, order)."""
    done = []
    for epoch, order in epochs:
        order = [int(i) for i in order]
        raw = array.array("I", order).tobytes()
        entry = {"epoch": epoch, "count": len(order), "sha256": hashlib.sha256(raw).hexdigest()}
        entry.update({"order": order} if len(order) <= 64 else {"first": order[:8], "last": order[-8:]})
        done.append(entry)
    if "seed" in params:
        params["seed"] = str(params["seed"])
    CASES.append({"recipe": recipe, "version": version, "params": params, "epochs": done})


def generator(seed):
    return torch.Generator().manual_seed(seed)


def abandoned(seed, n, batch_size, drop_last, workers, persistent, own, leave):
    torch.manual_seed(seed)
    g = generator(seed) if own else None
    loader = data.DataLoader(range(n), batch_size, True, drop_last=drop_last, num_workers=workers, persistent_workers=persistent, generator=g)
    epochs = []
    for epoch in range(max(leave) + 3):
        if epoch in leave:
            abandon(loader, leave[epoch])
        else:
            epochs.append((epoch, epoch_of(loader)))
    record("torch.dataloader", torch.__version__, epochs, seed=seed, n=n, batch_size=batch_size, drop_last=drop_last, num_workers=workers, persistent_workers=persistent,
           generator="explicit" if own else "default", abandoned=[[e, k] for e, k in leave.items()])


def loaders():
    for drop_last, n in ((False, 22), (True, 22), (False, 24)):
        for taken in range(n // 4 + 1 + (not drop_last and n % 4 > 0)):
            abandoned(42, n, 4, drop_last, 0, False, True, {0: taken})
    abandoned(42, 22, 4, False, 0, False, False, {0: 0, 2: 3})
    abandoned(42, 5, None, False, 0, False, True, {0: 4})
    abandoned(42, 5, None, False, 0, False, True, {0: 5})
    for workers, persistent in ((1, False), (2, True)):
        for taken in (0, 2, 3, 4, 5, 6):
            abandoned(7, 22, 4, False, workers, persistent, True, {1: taken})
            abandoned(7, 24, 4, False, workers, persistent, True, {0: taken})


def shards():
    for n in (1, 5, 22, 24, 29):
        for split in (False, True):
            for even in (False, True):
                for drop_last in (False, True):
                    for world, rank in ((2, 1), (4, 0), (4, 2), (4, 3)):
                        torch.manual_seed(3)
                        batches = data.BatchSampler(SeedableRandomSampler(range(n)), 4, drop_last)
                        order = [i for batch in BatchSamplerShard(batches, world, rank, split, even) for i in batch]
                        record("accelerate.batch_sampler_shard", accelerate.__version__, [(0, order)], seed=3, n=n, batch_size=4, drop_last=drop_last, world=world, rank=rank, split_batches=split, even_batches=even)


def prepared():
    """accelerate without the seedable sampler."""
    for own in (False, True):
        g = generator(6) if own else None
        torch.manual_seed(6)
        loader = data.DataLoader(range(22), 4, True, generator=g)
        loader = prepare_data_loader(loader, num_processes=2, process_index=1, put_on_device=False)
        epochs = [(e, [i for batch in loader for i in batch]) for e in range(3)]
        record("accelerate.batch_sampler_shard", accelerate.__version__, epochs, seed=6, n=22, batch_size=4, drop_last=False, world=2, rank=1, use_seedable_sampler=False, generator="explicit" if own else "default")


def repeats():
    for n in (0, 3, 256, 300):
        for num_repeats, selected_round in ((3, 256), (1, 0), (2.5, 256), (0.7, 100), (1.1, 0)):
            sampler = RepeatAugSampler(range(n), 3, 2, True, num_repeats, selected_round)
            sampler.set_epoch(1)
            record("timm.repeat_aug_sampler", timm.__version__, [(1, sampler)], n=n, world=3, rank=2, num_repeats=num_repeats, selected_round=selected_round, shuffle=True)


def samplers():
    for n, replacement, count in ((10, False, 3), (10, False, 20), (7, True, 31), (2**28, True, 5), (2**28 - 1, True, 5)):
        sampler = data.RandomSampler(range(n), replacement, count, generator(5))
        record("torch.random_sampler", torch.__version__, [(e, list(sampler)) for e in range(2)], seed=5, n=n, replacement=replacement, num_samples=count, generator="explicit")
    sampler = data.SubsetRandomSampler([9, 2, 2**32 - 1, 2, 0], generator(5))
    record("torch.subset_random_sampler", torch.__version__, [(e, list(sampler)) for e in range(2)], seed=5, indices=[9, 2, 2**32 - 1, 2, 0])
    weights = [0.0, 3.5, 1e-9, 0.0, 1e9, 7.0, 1e8]
    sampler = data.WeightedRandomSampler(weights, 40, True, generator(5))
    record("torch.weighted_random_sampler", torch.__version__, [(e, list(sampler)) for e in range(2)], seed=5, n=len(weights), weights=weights, num_samples=40, replacement=True)
    for n, lengths in ((10, [1]), (11, [0.3, 0.3, 0.4]), (7, [0.1] * 10), (0, [0.5, 0.5]), (5, [5, 0])):
        record("torch.random_split", torch.__version__, [(i, s.indices) for i, s in enumerate(data.random_split(range(n), lengths, generator(5)))], seed=5, n=n, lengths=lengths)


def legacy():
    for n, replacement, count in ((1, False, None), (22, False, None), (22, True, None), (10, True, 45)):
        for own in (False, True):
            for loader in (False, True):
                torch.manual_seed(9)
                g = generator(9) if own else None
                epochs = sampler = data.RandomSampler(range(n), replacement, count, g)
                if loader:
                    epochs = data.DataLoader(range(n), batch_size=7, sampler=sampler, generator=g)
                orders = [(e, [i for batch in epochs for i in (batch if loader else [batch])]) for e in range(3)]
                record("torch.random_sampler_legacy", torch.__version__, orders, seed=9, n=n, semantics=SEMANTICS, generator="explicit" if own else "default", dataloader=loader, replacement=replacement, num_samples=count)


if __name__ == "__main__":
    for make in (samplers, loaders, shards, prepared, repeats) if RELEASE >= (1, 11) else (legacy,):
        make()
    lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in CASES)
    sys.stdout.write('{"schema":"shuffle-vectors/1","recipe":"several","set":"recorded","cases":[\n' + lines + "\n]}\n")
