"""`lcache order --diff` compares states of real loaders. What it says is compared with torch's own orders."""

import json
import subprocess

import pytest
import realserver
from embedded_servers import folder, root  # noqa: F401

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)

from torch.utils import data  # noqa: E402

import lcache.torch as lt  # noqa: E402

SIZE = 16


def index(_, sample):
    return sample.index


def loader_of(folder, root, world=None, rank=0, **options):
    dataset = lt.Dataset(folder.root, index, cache=root)
    if world is None:
        return lt.DataLoader(dataset, **{"batch_size": SIZE, "shuffle": True, "seed": 5, **options})
    sampler = data.DistributedSampler(dataset, world, rank, seed=options.pop("seed", 5), shuffle=options.pop("shuffle", True))
    return lt.DataLoader(dataset, sampler=sampler, **{"batch_size": SIZE, **options})


def state_of(loader, epochs, batches, tmp_path, name):
    """The file of the state after some epochs and batches."""
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        for _ in loader:
            pass
    loader.set_epoch(epochs)
    iterator = iter(loader)
    for _ in range(batches):
        next(iterator)
    path = tmp_path / name
    path.write_text(json.dumps(loader.state_dict()))
    return str(path)


def diff(*args):
    """(exit code, the document that --json prints)"""
    done = subprocess.run([realserver.BINARY, "order", "--diff", *map(str, args), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


def torch_orders(folder, epochs, world=None, rank=0, seed=5, **options):
    """Torch's own orders, epoch by epoch."""
    if world is None:
        loader = data.DataLoader(range(len(folder)), SIZE, shuffle=True, generator=torch.Generator().manual_seed(seed), **options)
        return [[i for batch in loader for i in batch.tolist()] for _ in range(epochs)]
    orders = []
    for epoch in range(epochs):
        sampler = data.DistributedSampler(range(len(folder)), world, rank, seed=seed, **options)
        sampler.set_epoch(epoch)
        orders.append(list(sampler))
    return orders


def first_of(a, b):
    """(epoch, position, a's sample, b's sample) where orders first differ."""
    for epoch, (x, y) in enumerate(zip(a, b)):
        for position in range(max(len(x), len(y))):
            sample_x, sample_y = (order[position] if position < len(order) else -1 for order in (x, y))
            if sample_x != sample_y:
                return epoch, position, sample_x, sample_y
    return None


def options(document):
    return {o["option"] for o in document["options"]}


def place(document):
    first = document["first"]
    return first["epoch"], first["position"], first["a"], first["b"]


def test_equal(folder, root, tmp_path):
    a, b = (state_of(loader_of(folder, root), 1, 3, tmp_path, name) for name in "ab")
    code, document = diff(a, b, "--samples", len(folder))
    assert (code, document["equal"], document["options"]) == (0, True, [])


def test_seed(folder, root, tmp_path):
    a, b = state_of(loader_of(folder, root), 1, 2, tmp_path, "a"), state_of(loader_of(folder, root, seed=6), 1, 2, tmp_path, "b")
    code, document = diff(a, b, "--samples", len(folder))
    assert (code, options(document)) == (1, {"seed", "order_digest"})
    assert place(document) == first_of(torch_orders(folder, 2), torch_orders(folder, 2, seed=6))
    assert document["recipes"] == ["DataLoader(shuffle=True)"] * 2
    code, document = diff(a, b)  # without the size only the epoch of the states is known
    assert (code, document["first"]["epoch"], document["first"]["rank"]) == (1, 1, -1)


def test_batch_size(folder, root, tmp_path):
    a, b = state_of(loader_of(folder, root), 0, 2, tmp_path, "a"), state_of(loader_of(folder, root, batch_size=8), 0, 2, tmp_path, "b")
    code, document = diff(a, b, "--samples", len(folder))
    assert (code, options(document)) == (1, {"batch_size"})
    assert "first" not in document and any("same samples in the same order" in note for note in document["notes"])


def test_world(folder, root, tmp_path):
    a, b = (state_of(loader_of(folder, root, world=world), 0, 2, tmp_path, str(world)) for world in (2, 4))
    code, document = diff(a, b, "--samples", len(folder))
    assert (code, options(document)) == (1, {"world"})
    assert place(document) == first_of(torch_orders(folder, 1, 2), torch_orders(folder, 1, 4))


def test_sampler(folder, root, tmp_path):
    a, b = state_of(loader_of(folder, root, world=2), 1, 2, tmp_path, "a"), state_of(loader_of(folder, root, world=2, shuffle=False), 1, 2, tmp_path, "b")
    code, document = diff(a, b, "--samples", len(folder))
    assert (code, options(document)) == (1, {"recipe", "order_digest"})
    assert document["recipes"] == ["DistributedSampler", "no shuffle"]
    assert place(document) == first_of(torch_orders(folder, 2, 2), torch_orders(folder, 2, 2, shuffle=False))


def test_persistent_workers(folder, root, tmp_path):
    """Workers that stay draw fewer numbers of the generator: the first epoch is the same, the second is not."""
    a = state_of(loader_of(folder, root, num_workers=1), 1, 2, tmp_path, "a")
    b = state_of(loader_of(folder, root, num_workers=1, persistent_workers=True), 1, 2, tmp_path, "b")
    code, document = diff(a, b, "--samples", len(folder))
    assert (code, options(document)) == (1, {"recipe", "order_digest"})
    want = first_of(torch_orders(folder, 2, num_workers=1), torch_orders(folder, 2, num_workers=1, persistent_workers=True))
    assert want[0] == 1 and place(document) == want


def test_digests(folder, root, tmp_path):
    state = json.loads(open(state_of(loader_of(folder, root), 0, 1, tmp_path, "a")).read())
    assert diff(state["order_digest"], state["order_digest"])[0] == 0
    assert diff(state["order_digest"], "0" * 64)[0] == 1
    assert diff(tmp_path / "a", state["order_digest"])[0] == 0
