"""A loader without workers requests its next batch before the training loop does."""

import os
import signal

import pytest
from embedded_servers import folder, patient, root  # noqa: F401
from waits import until

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)

from torch.utils import data  # noqa: E402

import lcache  # noqa: E402
import lcache.torch as lt  # noqa: E402

SIZE = 16


def index(_, sample):
    return sample.index


def lists(loader):
    return [batch.tolist() for batch in loader]


def want(folder, epochs=2):
    loader = data.DataLoader(range(len(folder)), SIZE, shuffle=True, generator=torch.Generator().manual_seed(5))
    return [lists(loader) for _ in range(epochs)]


def build(folder, root, workers=0, decode=index, **more):
    return lt.DataLoader(lt.Dataset(folder.root, decode, cache=root), SIZE, shuffle=True, seed=5, num_workers=workers, **more)


def waiting(loader):
    """The number of a loader's early requests that are not used yet."""
    return sum(len(job._early._sent) for job in loader.batch_sampler.order_ahead.jobs)


def leased(job):
    """The bytes that the server has lent to all clients."""
    return sum(rank["leased_bytes"] for entry in job.stats()["jobs"] for rank in entry["ranks"])


@pytest.fixture
def used(monkeypatch):
    """The positions of answers to requests that were sent early."""
    found, answer = [], lcache._client.early.EarlyRequest.answer

    def seen(request, body, deadline):
        early = answer(request, body, deadline)
        if early is not None:
            found.append(body)
        return early

    monkeypatch.setattr(lcache._client.early.EarlyRequest, "answer", seen)
    return found


def test_every_batch_is_requested_ahead(folder, root, used):
    loader, expected = build(folder, root), want(folder)
    assert lists(loader) == expected[0]
    used.clear()
    for got, batch in zip(loader, expected[1]):
        assert got.tolist() == batch
        assert waiting(loader) == (batch is not expected[1][-1])
    assert len(used) == len(set(used)) == len(expected[1]) - 1
    assert waiting(loader) == 0


def test_answers_before_the_loop_asks(folder, root):
    """The next batch arrives while the loop works on a batch."""
    loader = build(folder, root)
    lists(loader)
    iterator = iter(loader)
    next(iterator)
    (job,) = loader.batch_sampler.order_ahead.jobs
    (request,) = job._early._sent.values()
    assert request.answer.connection.wait(10)


def test_broken_off(folder, root):
    loader, expected = build(folder, root), want(folder, 3)
    lists(loader)
    iterator = iter(loader)
    begun = [next(iterator).tolist() for _ in range(3)]
    (job,) = loader.batch_sampler.order_ahead.jobs
    until(lambda: leased(job), "the lease of the batch that was requested ahead")
    assert begun == expected[1][:3] and waiting(loader) == 1
    state = loader.state_dict()
    assert state["consumed"] == 3
    del iterator
    assert waiting(loader) == 0
    assert lists(loader) == expected[2]
    loader.load_state_dict(state)
    assert lists(loader) == expected[1][3:]
    until(lambda: leased(job) == 0, "the end of all leases")


def test_other_requests_between(folder, root, used):
    """The program may request any samples between two batches."""
    loader, (expected,) = build(folder, root), want(folder, 1)
    for got, batch in zip(loader, expected):
        assert got.tolist() == batch
        assert loader.dataset[3] == 3
        assert loader.dataset.__getitems__([5, 4]) == [5, 4]
    assert len(used) >= len(expected) - 2


def test_server_killed_with_a_request_ahead(folder, root):
    loader, expected = build(folder, root), want(folder)
    lists(loader)
    iterator = iter(loader)
    got = [next(iterator).tolist() for _ in range(3)]
    (job,) = loader.batch_sampler.order_ahead.jobs
    assert waiting(loader) == 1
    os.kill(job.pid, signal.SIGKILL)
    got += [batch.tolist() for batch in iterator]
    assert got == expected[1]


def test_an_error_is_the_one_of_now(folder, root, monkeypatch):
    """If an early request fails, it is sent again when the loop requests the batch."""
    loader, expected = build(folder, root), want(folder)
    lists(loader)
    iterator = iter(loader)
    got = [next(iterator).tolist()]
    answer, failed = lcache._client.link.Link.answer, []

    def fails_once(link, request, deadline=None):
        if not failed:
            failed.append(request)
            raise lcache.TimeoutError("the source did not answer")
        return answer(link, request, deadline)

    monkeypatch.setattr(lcache._client.link.Link, "answer", fails_once)
    got += [batch.tolist() for batch in iterator]
    assert got == expected[1] and failed


def test_not_ahead(folder, root, patient, used):
    """No early requests with workers, which prefetch anyway, or if the order differs from the prediction."""
    assert lists(build(folder, root, workers=2)) == want(folder, 1)[0]

    class Wandering(data.Sampler):
        """Has another order in another process."""

        def __init__(self):
            self.pid = os.getpid()

        def __iter__(self):
            for i in range(len(folder)):
                yield (i + (os.getpid() != self.pid)) % len(folder)

        def __len__(self):
            return len(folder)

    used.clear()
    dataset = lt.Dataset(folder.root, index, cache=root)
    loader = lt.DataLoader(dataset, SIZE, sampler=Wandering())
    lists(loader)
    used.clear()
    lists(loader)
    assert not loader.batch_sampler.order_ahead.exact and not used


@pytest.mark.parametrize("whole", [False, True])
def test_other_ways_to_decode(folder, root, used, whole):
    """Early requests also work with a batch that is decoded at once, and without decode."""
    more = {"decode_batch": lambda views, columns: torch.tensor(columns.indices.tolist())} if whole else {}
    dataset = lt.Dataset(folder.root, cache=root, **more)
    loader = lt.DataLoader(dataset, SIZE, shuffle=True, seed=5, collate_fn=None if whole else lambda pairs: pairs)
    expected = want(folder)
    for order in expected:
        used.clear()
        got = lists(loader) if whole else list(loader)
        assert got == (order if whole else [[(folder.contents[i], folder.labels[i]) for i in batch] for batch in order])
    assert len(used) == len(expected[1]) - 1
