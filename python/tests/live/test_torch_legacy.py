"""RandomSampler and DataLoader of torch up to 1.10. Skipped with later releases: it needs a separate environment with Python 3.8."""

import pytest

from harness import SIZES, Check

torch = pytest.importorskip("torch")
RELEASE = tuple(int(x) for x in torch.__version__.split(".")[:2])
SEMANTICS = "torch<=1.6" if RELEASE <= (1, 6) else "torch1.7-1.8" if RELEASE <= (1, 8) else "torch1.9-1.10"

pytestmark = pytest.mark.skipif(RELEASE >= (1, 11), reason=f"torch {torch.__version__} is not 1.10 or older")


def test_legacy():
    with Check(f"torch.random_sampler_legacy, torch {torch.__version__}", share=8) as check:
        cases = [(n, own, loader, replacement) for n in SIZES for own in (False, True) for loader in (False, True) for replacement in (False, True)]
        for n, own, loader, replacement in cases:
            seed = check.rng.getrandbits(32)
            count = check.rng.choice([None, check.rng.randrange(1, 100)]) if replacement else None
            torch.manual_seed(seed)
            g = None
            if own:
                g = torch.Generator()
                g.manual_seed(seed)
            epochs = sampler = torch.utils.data.RandomSampler(range(n), replacement, count, g)
            if loader:
                epochs = torch.utils.data.DataLoader(range(n), batch_size=7, sampler=sampler, generator=g)
            for epoch in range(3):
                want = [int(i) for batch in epochs for i in (batch if loader else [batch])]
                check.same(want, "torch.random_sampler_legacy", n=n, seed=seed, semantics=SEMANTICS, generator="explicit" if own else "default", dataloader=loader, replacement=replacement, num_samples=count, epoch=epoch)
