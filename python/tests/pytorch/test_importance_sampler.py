"""ImportanceSampler, whose order the server draws: in torch's and lcache's loader, with and without workers, and after a resume. It is never copied or pushed."""

import copy
import json
import os
import re

import pictures
import pytest
from embedded_servers import pushed, root  # noqa: F401
from realserver import ROOT, Folder, Server, needs_binary

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)

from torch.utils import data  # noqa: E402

import lcache  # noqa: E402
import lcache.torch as lt  # noqa: E402

SAMPLES, SIZE = 120, 16
IMPACT = {"method": "impact", "s_share": 0, "lag": 0}

pytestmark = needs_binary

with open(os.path.join(ROOT, "docs", "importance.md")) as f:
    BLOCKS = re.findall(r"^```python\n(.*?)^```", f.read(), re.M | re.S)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_blocks_run(server, monkeypatch, number):
    """The example in docs/importance.md runs as it is."""
    monkeypatch.setenv("LCACHE_SOCKET", server.socket)
    exec(compile(BLOCKS[number], f"importance.md {number}", "exec"), {})
    assert server.job()["importance"]["requested"] >= SAMPLES


def size(contents, _):
    return len(contents)


@pytest.fixture
def folder(source_dir):
    return Folder(source_dir(), [1 + 37 * i % 1000 for i in range(SAMPLES)])


@pytest.fixture
def server(folder, tmp_path):
    server = Server(folder, tmp_path / "cache", epochs=6, batch_size=SIZE)
    server.ingest()
    yield server.start()
    server.stop()


@pytest.fixture
def job(server):
    with server.connect() as job:
        job.importance(**IMPACT)
        yield job


def of_torch(dataset, sampler, workers):
    return data.DataLoader(dataset, SIZE, sampler=sampler, num_workers=workers)


def of_lcache(dataset, sampler, workers):
    return lt.DataLoader(dataset, SIZE, sampler=sampler, num_workers=workers)


def below_a_batch_sampler(dataset, sampler, workers):
    return data.DataLoader(dataset, batch_sampler=lt.BatchSampler(sampler, SIZE, False, dataset), num_workers=workers)


def train(loader, job, epoch):
    """Reads and observes an epoch. Returns its indices in the order of the loader."""
    order = []
    for x, y, indices in loader:
        job.observe(indices, [float((37 * i + epoch) % 101) for i in indices.tolist()])
        order += zip(indices.tolist(), x.tolist(), y.tolist())
    return order


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", [of_torch, of_lcache, below_a_batch_sampler])
def test_order_is_the_servers(server, folder, job, pushed, kind, workers):
    sampler = lt.ImportanceSampler(job)
    loader = kind(lt.Dataset(job=job, decode=size, return_index=True), sampler, workers)
    lengths = []
    for epoch in range(3):
        lengths.append(len(sampler))
        assert len(loader) == -(-len(sampler) // SIZE)
        got = train(loader, job, epoch)
        assert [i for i, _, _ in got] == list(job.order(epoch)), "another order than the server's"
        assert all((x, y) == (len(folder.contents[i]), folder.labels[i]) for i, x, y in got)
        assert len(sampler) == lengths[-1] == len(got), "the epoch is over only when the loop says so"
        job.end_epoch()
    assert lengths[0] == SAMPLES > lengths[1] == lengths[2]
    own = job.stats()["jobs"][0]
    assert own["importance"]["requested"] == sum(lengths), "requests without positions"
    assert (own["divergences"], pushed) == (0, [])


def test_broken_off(job):
    """After a loop has read a part of an epoch, it continues with the next epoch."""
    loader = of_torch(lt.Dataset(job=job, return_index=True), lt.ImportanceSampler(job), 0)
    first, index = next(iter(loader))[1:]
    assert (first.dtype, index.tolist()) == (torch.int64, list(job.order(0)[:SIZE]))
    loader.sampler.set_epoch(0)
    assert next(iter(loader))[2].tolist() == index.tolist()
    assert next(iter(loader))[2].tolist() == list(job.order(1)[:SIZE])


def test_length_after_the_last_epoch(job):
    sampler = lt.ImportanceSampler(job)
    sampler.set_epoch(job.epochs - 1)
    length = len(list(sampler))
    job.end_epoch(epoch=job.epochs - 1)
    assert len(sampler) == length
    with pytest.raises(lcache.ArgumentError):
        list(sampler)


@pytest.mark.parametrize("batch_size", [SIZE, 10])
def test_resume(server, job, batch_size):
    def fresh(job):
        return lt.DataLoader(lt.Dataset(job=job, return_index=True), batch_size, sampler=lt.ImportanceSampler(job))

    loader = of_lcache(lt.Dataset(job=job, decode=size, return_index=True), lt.ImportanceSampler(job), 0)
    train(loader, job, 0)
    job.end_epoch()
    want = list(job.order(1))
    batches = iter(loader)
    assert [i for _ in range(2) for i in next(batches)[2].tolist()] == want[: 2 * SIZE]
    state = json.loads(json.dumps(loader.state_dict()))
    assert (state["epoch"], state["consumed"], len(state["order_digest"])) == (1, 2, 64)
    server.kill()
    server.start()
    with server.connect() as again:
        again.importance(**IMPACT)
        loader = fresh(again)
        loader.load_state_dict(state)
        assert [i for batch in loader for i in batch[2].tolist()] == want[2 * SIZE :]
        again.end_epoch()
        assert [i for batch in loader for i in batch[2].tolist()] == list(again.order(2))
        loader = fresh(again)
        loader.load_state_dict({**state, "order_digest": "0" * 64})
        with pytest.raises(lcache.Error, match="its order differs from the saved one"):
            next(iter(loader))


def test_two_ranks(folder, tmp_path):
    server = Server(folder, tmp_path / "two", epochs=3, batch_size=SIZE, world=2)
    server.ingest()
    with server.start().connect() as job:
        job.importance(**IMPACT)
        samplers = [lt.ImportanceSampler(job, rank, 2) for rank in range(2)]
        for epoch in range(2):
            orders = [list(sampler) for sampler in samplers]
            assert orders == [list(job.order(epoch, rank)) for rank in range(2)]
            assert list(map(len, orders)) == list(map(len, samplers))
            assert list(samplers[1].global_order(epoch)) == [i for pair in zip(*orders) for i in pair]
            for rank, order in enumerate(orders):
                job.observe(order, [float(i) for i in order], rank=rank)
            for rank in range(2):
                job.end_epoch(epoch=epoch, rank=rank)
        assert len(set(orders[0] + orders[1])) == 2 * len(orders[0]) < SAMPLES
    server.stop()


def test_arguments(server):
    with server.connect() as job:
        with pytest.raises(lcache.Error, match=r"job\.importance first"):
            lt.ImportanceSampler(job)
        job.importance(**IMPACT)
        for wrong in ({"world_size": 2}, {"rank": 1}, {"rank": -1}):
            with pytest.raises(lcache.ArgumentError, match="world|rank must be"):
                lt.ImportanceSampler(job, **wrong)
        with pytest.raises(lcache.Error, match="can't be copied"):
            copy.deepcopy(lt.ImportanceSampler(job))


def test_another_job(server, job):
    """A dataset with other indices or batches is refused."""
    sampler = lt.ImportanceSampler(job)
    with server.connect() as plain, plain.named("other") as other, pytest.raises(lcache.ArgumentError, match="job="):
        of_lcache(lt.Dataset(job=other), sampler, 0)
    with pytest.raises(lcache.ArgumentError, match="use the whole dataset|neither a part"):
        of_lcache(data.Subset(lt.Dataset(job=job), range(50)), sampler, 0)


def test_pictures(tmp_path, root):
    """ImageFolder yields (image, label, index). With a part of the samples it yields the job's indices, and refuses an order of all samples."""
    pytest.importorskip("PIL", reason="PIL is not installed")
    photos = pictures.make(str(tmp_path / "pictures"), count=12)
    with lcache.open(photos, cache=root, ext=".png,.PNG", batch_size=4, epochs=2) as job:
        dataset = lt.ImageFolder(job=job, transform=lambda image: torch.tensor(image.size), return_index=True)
        assert [sample[1:] for sample in dataset] == [(label, i) for i, label in enumerate(job.labels())]
        assert dataset[3][0].tolist() == [8, 8]
        some = lt.ImageFolder(job=job, allow_empty=True, is_valid_file=lambda path: "bee" in path, transform=lambda _: 0, return_index=True)
        indices = [index for _, _, index in some]
        assert len(indices) == 4 and all("bee" in name for name in job.names(indices))
        job.importance("shade", lag=0)
        with pytest.raises(lcache.ArgumentError, match="use the whole dataset|neither a part"):
            next(iter(data.DataLoader(some, 4, sampler=lt.ImportanceSampler(job))))


def test_ready_batches(server, folder, job):
    def lengths(views, _):
        return torch.tensor([len(view) for view in views])

    def pairs(views, columns):
        return torch.tensor([len(view) for view in views]), -columns.labels[0] * torch.ones(len(views))

    def listed(views, _):
        return [len(view) for view in views]

    for decode, sign in ((lengths, 1), (listed, 1), (pairs, -1)):
        dataset = lt.Dataset(job=job, decode_batch=decode, return_index=True)
        for x, y, indices in data.DataLoader(dataset, SIZE):
            assert x.tolist() == [len(folder.contents[i]) for i in indices.tolist()]
            if sign > 0:
                assert y.tolist() == [folder.labels[i] for i in indices.tolist()]
        x, y, index = dataset[7]
        assert (int(x), int(y), int(index)) == (len(folder.contents[7]), sign * folder.labels[7], 7)
