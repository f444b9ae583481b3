"""accelerate's samplers, HF Trainer and timm's repeated augmentation."""

import pytest

from harness import SEEDS, Check

torch = pytest.importorskip("torch")


def test_seedable_random_sampler():
    pytest.importorskip("accelerate")
    from accelerate.data_loader import SeedableRandomSampler

    with Check("accelerate.seedable_random_sampler", share=1) as check:
        def one(n, seed, data_seed, epoch):
            torch.manual_seed(seed)

            def run():
                sampler = SeedableRandomSampler(range(n), data_seed=data_seed)
                sampler.set_epoch(epoch)
                return list(sampler)

            check.both(run, "accelerate.seedable_random_sampler", n=n, seed=seed, data_seed=data_seed, epoch=epoch)

        for seed in SEEDS:
            for epoch in (0, 1):
                one(10, seed, None, epoch)
                one(10, 7, seed, epoch)
        for n in (0, 1, 2, 1009):
            one(n, 42, None, 2)
        for _ in check.random_cases():
            one(check.size(), check.seed(), check.rng.choice([None, 0, check.seed()]), check.rng.randrange(100))


def test_batch_sampler_shard():
    pytest.importorskip("accelerate")
    from accelerate.data_loader import BatchSamplerShard, SeedableRandomSampler

    with Check("accelerate.batch_sampler_shard", share=4) as check:
        def one(n, batch_size, drop_last, world, rank, split_batches, even_batches, seed=42, epoch=0):
            what = dict(n=n, seed=seed, batch_size=batch_size, drop_last=drop_last, world=world, rank=rank, split_batches=split_batches, even_batches=even_batches, epoch=epoch)

            def run():
                torch.manual_seed(seed)
                sampler = SeedableRandomSampler(range(n))
                sampler.set_epoch(epoch)
                batches = torch.utils.data.BatchSampler(sampler, batch_size, drop_last)
                shard = BatchSamplerShard(batches, world, rank, split_batches, even_batches)
                return [i for batch in shard for i in batch]

            check.both(run, "accelerate.batch_sampler_shard", **what)

        for n in (1, 5, 22, 24, 25):
            for batch_size in (1, 4):
                for world in (1, 2, 4):
                    for flags in range(8):
                        one(n, batch_size, bool(flags & 1), world, world - 1 if flags & 2 else 0, bool(flags & 2), bool(flags & 4))
        for _ in check.random_cases():
            world = check.rng.randrange(1, 9)
            batch_size = check.rng.randrange(1, 9) * check.rng.choice([1, world])
            flag = [check.rng.random() < 0.5 for _ in range(3)]
            one(check.size(600), batch_size, flag[0], world, check.rng.randrange(world), flag[1], flag[2], check.seed() // 2, check.rng.randrange(9))


def test_prepared_loader():
    """accelerate's default, without the seedable sampler: the loader continues with its generator."""
    pytest.importorskip("accelerate")
    from accelerate.data_loader import prepare_data_loader

    with Check("accelerate, use_seedable_sampler=False", share=1) as check:
        for own in (False, True):
            for world, rank in ((2, 1), (3, 0)):
                n, seed = check.size(300), check.rng.getrandbits(32)
                g = torch.Generator().manual_seed(seed) if own else None
                torch.manual_seed(seed)
                loader = torch.utils.data.DataLoader(range(n), batch_size=4, shuffle=True, generator=g)
                loader = prepare_data_loader(loader, num_processes=world, process_index=rank, put_on_device=False)
                for epoch in range(3):
                    want = [int(i) for batch in loader for i in batch]
                    check.same(want, "accelerate.batch_sampler_shard", n=n, seed=seed, batch_size=4, world=world, rank=rank, use_seedable_sampler=False, generator="explicit" if own else "default", epoch=epoch)


def test_trainer(tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")

    class Model(torch.nn.Module):
        """Records the inputs from the training loop."""

        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))
            self.seen = []

        def forward(self, i):
            self.seen += i.tolist()
            return {"loss": self.weight.sum()}

    with Check("HF Trainer, one process", share=0) as check:
        for n, seed, data_seed in ((23, 42, None), (23, 7, 0), (24, 1, 1234)):
            model = Model()
            args = transformers.TrainingArguments(str(tmp_path), use_cpu=True, seed=seed, data_seed=data_seed, num_train_epochs=2, per_device_train_batch_size=4, report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no")
            transformers.Trainer(model, args, train_dataset=[{"i": i} for i in range(n)], data_collator=lambda rows: {"i": torch.tensor([r["i"] for r in rows])}).train()
            for epoch in range(2):
                want = model.seen[epoch * n : (epoch + 1) * n]
                check.same(want, "accelerate.seedable_random_sampler", n=n, seed=seed, data_seed=data_seed, epoch=epoch)


def test_repeat_aug():
    pytest.importorskip("timm")
    from timm.data.distributed_sampler import RepeatAugSampler

    with Check("timm.repeat_aug_sampler", share=2) as check:
        def one(n, world, rank, num_repeats, selected_round, shuffle, epoch):
            def run():
                sampler = RepeatAugSampler(range(n), world, rank, shuffle, num_repeats, selected_round)
                sampler.set_epoch(epoch)
                return list(sampler)

            check.both(run, "timm.repeat_aug_sampler", n=n, world=world, rank=rank, num_repeats=num_repeats, selected_round=selected_round, shuffle=shuffle, epoch=epoch)

        for n in (0, 1, 2, 255, 256, 257, 1009):
            for world in (1, 4, 7):
                for repeats in (1, 3, 2.5):
                    one(n, world, world - 1, repeats, 256, True, 1)
        for selected_round in (0, 1, 100):
            one(300, 3, 2, 3, selected_round, True, 0)
        for _ in check.random_cases():
            world = check.rng.choice([1, 2, 8, check.rng.randrange(1, 40)])
            repeats = check.rng.choice([1, 2, 3, 4, round(check.rng.uniform(0.3, 5), 3)])
            one(check.size(), world, check.rng.randrange(world), repeats, check.rng.choice([0, 100, 256]), check.rng.random() < 0.9, check.rng.randrange(100))
