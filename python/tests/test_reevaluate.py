"""ImPACT's unstable samples: between two epochs each rank evaluates its part of them again, and the server draws the next order from the new losses."""

import random
import statistics

import pytest
from realserver import Folder, Server, needs_binary, together

SAMPLES, WORLD, WARMUP, SHARE = 240, 2, 3, 0.5
FLOOR = 0.05  # the least target

pytestmark = needs_binary


@pytest.fixture(scope="module")
def folder(source_dir):
    draw = random.Random(5)
    return Folder(source_dir(), [1 + draw.randrange(3000) for _ in range(SAMPLES)])


@pytest.fixture
def server(folder, tmp_path):
    server = Server(folder, tmp_path / "cache", epochs=8, world=WORLD)
    server.ingest()
    yield server.start()
    server.stop()


def loss(index, epoch):
    """The losses of every fifth sample go up and down from epoch to epoch. No two samples have the same loss."""
    return index / 8 + (500 if index % 5 == 0 and epoch % 2 else 0)


def again(index, epoch):
    """The loss of a repeated evaluation. For every tenth sample it differs from that of all epochs."""
    return 1000 + index / 8 if index % 10 == 0 else loss(index, epoch)


def places(losses):
    """Percentile ranks (ImPACT §III-A), computed independently."""
    return {i: k / (SAMPLES - 1) for k, i in enumerate(sorted(losses, key=lambda i: (losses[i], i)))}


def targets(losses):
    """Expected uses in the next epoch, computed independently."""
    return {i: max(FLOOR, place) for i, place in places(losses).items()}


def unstable_samples():
    """The samples whose percentile ranks vary most over the warm-up (ImPACT §III-B), computed independently."""
    epochs = [places({i: loss(i, epoch) for i in range(SAMPLES)}) for epoch in range(WARMUP)]
    spread = {i: statistics.pvariance([place[i] for place in epochs]) for i in range(SAMPLES)}
    return sorted(spread, key=lambda i: (-spread[i], i))[: int(SHARE * SAMPLES)]


class Training:
    """All ranks of a job, each with its own connection. losses has the newest ones."""

    def __init__(self, server, monkeypatch):
        self.server, self.jobs, self.losses = server, [server.connect() for _ in range(WORLD)], {}
        for rank, job in enumerate(self.jobs):
            monkeypatch.setenv("WORLD_SIZE", str(WORLD))
            monkeypatch.setenv("RANK", str(rank))
            job.importance("impact", lag=0, cache=server.folder.bytes, s_share=SHARE, warmup=WARMUP, floor=FLOOR)
            assert job.rank == rank

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for job in self.jobs:
            job.close()

    def status(self):
        return self.jobs[0].stats()["jobs"][0]["importance"]

    def epoch(self, epoch):
        """Reads an epoch in all ranks, and observes it. Returns the served samples by rank."""
        served = [[] for _ in self.jobs]

        def one(rank):
            job = self.jobs[rank]
            for batch in job.epoch(epoch):
                indices = list(batch.indices)
                self.server.check(batch, indices)
                job.observe(indices, [loss(i, epoch) for i in indices])
                served[rank] += indices
                self.losses.update((i, loss(i, epoch)) for i in indices)
            job.end_epoch()

        together(*((one, rank) for rank in range(WORLD)))
        return served

    def orders(self, epoch):
        """The order of an epoch in all ranks. Each rank requests its own."""
        orders = [None for _ in self.jobs]

        def one(rank):
            orders[rank] = list(self.jobs[rank].order(epoch))

        together(*((one, rank) for rank in range(WORLD)))
        return orders

    def look(self, rank, epoch):
        """Evaluates a rank's part of the unstable samples again. Returns their indices in the order of the batches."""
        seen = []
        for batch in self.jobs[rank].reevaluate():
            indices = list(batch.indices)
            self.server.check(batch, indices)
            assert len(indices) <= self.server.batch_size
            self.jobs[rank].observe(indices, [again(i, epoch) for i in indices])
            self.losses.update((i, again(i, epoch)) for i in indices)
            seen += indices
        return seen


def test_a_look_changes_the_next_order(server, monkeypatch):
    """Each rank gets its part of the unstable samples S, with the right bytes and labels. Their new losses determine the next epoch's order and weights."""
    with Training(server, monkeypatch) as t:
        for epoch in range(WARMUP):
            assert [t.look(rank, epoch) for rank in range(WORLD)] == [[], []], "before the warm-up has ended"
            assert sorted(sum(t.epoch(epoch), [])) == list(range(SAMPLES))
        drawn = t.epoch(WARMUP)  # drawn from the losses of the warm-up, after which S is known
        s = t.status()
        assert (s["warmup_epochs"], s["reevaluations_missed"], s["state"]) == (WARMUP, 0, "active")
        before, said = targets(t.losses), WARMUP * SAMPLES + len(sum(drawn, []))
        looked = [t.look(rank, WARMUP) for rank in range(WORLD)]
        unstable = sorted(looked[0] + looked[1])
        assert len(unstable) == s["s_size"]
        assert unstable == sorted(unstable_samples())
        assert looked == [unstable[rank::WORLD] for rank in range(WORLD)]
        raised = [i for i in unstable if i % 10 == 0]
        after = targets(t.losses)
        assert all(after[i] > before[i] for i in raised), "the look says nothing new"

        orders = t.orders(WARMUP + 1)
        s = t.status()  # of an order that was drawn after all observations
        assert (s["observations"] - said, s["reevaluations_missed"], s["observations_dropped"]) == (len(unstable), 0, 0)
        assert s["refused"] == {"unknown": 0, "notfinite": 0, "stale": 0, "shape": 0, "dimension": 0}
        order = set(sum(orders, []))
        assert len(order) == s["epoch_length"] < SAMPLES and set(sum(drawn, [])) != order
        assert len(order & set(raised)) > 0.9 * len(raised), "samples of the greatest losses are left out"
        some = sorted(order)
        weights = [1 / after[i] for i in some]
        mean = sum(weights) / len(weights)
        assert list(t.jobs[0].weights(some)) == pytest.approx([w / mean for w in weights], rel=1e-5)
        assert t.epoch(WARMUP + 1) == orders


def test_without_reevaluation(server, monkeypatch):
    """Without new losses the epoch still begins once all ranks request it, from the known losses, and is counted. Losses that follow are accepted."""
    with Training(server, monkeypatch) as t:
        for epoch in range(WARMUP + 2):
            t.epoch(epoch)
            assert t.status()["reevaluations_missed"] == max(0, epoch - WARMUP)
        for job in t.jobs:
            for _ in job.reevaluate():  # a loop that only reads, and ends early
                break
            job.observe([1], [3.0])
        t.epoch(WARMUP + 2)
        assert t.status()["reevaluations_missed"] == 2, "losses of an epoch's samples count as a look"
        assert t.look(1, WARMUP + 2)
        t.epoch(WARMUP + 3)
        assert t.status()["reevaluations_missed"] == 2, "what one rank has looked at is missed"
