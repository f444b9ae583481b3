"""A job that allows substitutes, in torch's loader and lcache's: the loader requests the sampler's indices, and gets other samples with their own labels and indices."""

import pytest
from realserver import Folder, Server, needs_binary

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)

from torch.utils import data  # noqa: E402

import lcache.torch as lt  # noqa: E402

SAMPLES, SIZE = 600, 16
LOW = {"method": "impact", "substitute": "low", "s_share": 0, "l_depth": 1, "cache": "500kB"}

pytestmark = needs_binary


@pytest.fixture
def server(source_dir, tmp_path):
    server = Server(Folder(source_dir(), [1 + 37 * i % 29_000 for i in range(SAMPLES)]), tmp_path / "cache", epochs=6, batch_size=SIZE)
    server.ingest()
    yield server.start()
    server.stop()


def size(contents, _):
    return len(contents)


def of_torch(dataset, sampler, workers, batch_size=SIZE):
    return data.DataLoader(dataset, batch_size, sampler=sampler, num_workers=workers)


def of_lcache(dataset, sampler, workers, batch_size=SIZE):
    return lt.DataLoader(dataset, batch_size, sampler=sampler, num_workers=workers)


def train(loader, job, epoch):
    """Reads and observes an epoch. Returns (index, x, y) of each served sample, in the order of the loader."""
    came = []
    for x, y, indices in loader:
        job.observe(indices, [float((37 * i + epoch) % 101) for i in indices.tolist()])
        came += zip(indices.tolist(), x.tolist(), y.tolist())
    return came


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", [of_torch, of_lcache])
def test_served_samples(server, kind, workers):
    """The loader yields the same as job.epoch: other samples than the sampler's, each with its own label, bytes and index."""
    folder = server.folder
    with server.connect() as job:
        job.importance(**LOW)
        loader = kind(lt.Dataset(job=job, decode=size, return_index=True), lt.ImportanceSampler(job), workers)
        for epoch in range(3):
            came = train(loader, job, epoch)
            order = list(job.order(epoch))
            assert len(came) == len(order)
            assert all((x, y) == (len(folder.contents[i]), folder.labels[i]) for i, x, y in came)
            replaced = [i for (i, _, _), asked in zip(came, order) if i != asked]
            assert (len(replaced) > 10) == (epoch > 0) and len(set(replaced)) == len(replaced)
            with server.connect() as other:
                want = [i for batch in other.epoch(epoch) for i in batch.indices]
            assert [i for i, _, _ in came] == want
            job.end_epoch()
        own = job.stats()["jobs"][0]
        assert own["divergences"] == 0 and own["importance"]["substituted"] > 20


def test_other_batches_are_exact(server):
    """Batches of another size than the job's are not batches of the epoch, so the requested samples are served."""
    with server.connect() as job:
        job.importance(**LOW)
        loader = of_torch(lt.Dataset(job=job, decode=size, return_index=True), lt.ImportanceSampler(job), 0, batch_size=10)
        for epoch in range(2):
            assert [i for i, _, _ in train(loader, job, epoch)] == list(job.order(epoch))
            job.end_epoch()


def test_without_return_index(server):
    """A dataset of (bytes, label) pairs has the served samples' bytes with the served samples' labels."""
    folder = server.folder
    by_content = {content: folder.labels[i] for i, content in enumerate(folder.contents)}
    with server.connect() as job:
        job.importance(**LOW)
        sampler = lt.ImportanceSampler(job)
        train(of_torch(lt.Dataset(job=job, decode=size, return_index=True), sampler, 0), job, 0)
        job.end_epoch()
        pairs = [pair for batch in data.DataLoader(lt.Dataset(job=job), SIZE, sampler=sampler, collate_fn=list) for pair in batch]
        order = list(job.order(1))
        assert [by_content[bytes(x)] for x, _ in pairs] == [y for _, y in pairs]
        assert [bytes(x) for x, _ in pairs] != [folder.contents[i] for i in order]
