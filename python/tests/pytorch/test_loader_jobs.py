"""Each loader is a separate job, with its own token, orders, ranks, counters and digests."""

import gc
import json
import logging
import os
import signal

import pytest
from embedded_servers import entry_of, folder, root  # noqa: F401
from realserver import Server, needs_binary
from waits import until, wait_for_end

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)

from forked import Program, start_ranks  # noqa: E402
from torch.utils import data  # noqa: E402

import lcache  # noqa: E402
import lcache.torch as lt  # noqa: E402
from lcache._client import protocol  # noqa: E402
from lcache.torch._order.ranks import digest  # noqa: E402

SIZE = 16


def index(_, sample):
    return sample.index


def read(loader):
    """The indices of an epoch, in order."""
    return [i for batch in loader for i in batch.tolist()]


def entries(dataset):
    """The server's jobs, by id."""
    return {entry["id"]: entry for entry in dataset.job.stats()["jobs"]}


def digests(entry):
    return [epoch["order_digest"] for epoch in entry["epochs_done"]]


WORKERS = {
    "none": {},
    "fork": {"num_workers": 2, "multiprocessing_context": "fork"},
    "spawn": {"num_workers": 1, "multiprocessing_context": "spawn"},
    "forkserver": {"num_workers": 1, "multiprocessing_context": "forkserver"},
    "persistent": {"num_workers": 2, "multiprocessing_context": "fork", "persistent_workers": True},
}


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.xdist_group("forked")) if kind == "forkserver" else kind for kind in WORKERS])
def test_two_loaders_are_two_jobs(folder, root, kind):
    """Training and validation alternate over one dataset. Each epoch has its exact digest, and each request belongs to its loader's job."""
    ours = lt.Dataset(folder.root, index, cache=root)
    part = data.Subset(ours, range(0, 240, 5))
    loaders = [lt.DataLoader(ours, SIZE, shuffle=True, seed=1, **WORKERS[kind]), lt.DataLoader(part, SIZE, shuffle=True, seed=2)]
    assert [loader.job_token for loader in loaders] == [None, None]
    want = [[], []]
    for _ in range(3):
        for loader, known in zip(loaders, want):
            known.append(digest(read(loader) if loader.dataset is ours else [i for batch in loader for i in batch.tolist()]))
    tokens = [loader.job_token for loader in loaders]
    run, ordinal = tokens[0].rsplit("/", 1)
    assert run.startswith(f"pid-{os.getpid()}-") and tokens[1] == f"{run}/{int(ordinal) + 1}"
    found = entries(ours)
    assert set(found) == set(tokens), "the server's own job, which is unused, is not listed"
    for token, known, samples in zip(tokens, want, (240, 48)):
        assert (digests(found[token]), found[token]["divergences"]) == (known, 0)
        assert (found[token]["samples_delivered"], found[token]["pids"]) == (3 * samples, [os.getpid()])
    assert [e["owner"] for e in ours.job.stats()["jobs"]][0], "the first entry is that of the owner"


def test_loaders_at_the_same_time(folder, root):
    """An epoch of one loader runs within an epoch of the other. Both are laid out or read ahead, and neither disturbs the other."""
    ours = lt.Dataset(folder.root, index, cache=root)
    train, check = lt.DataLoader(ours, SIZE, shuffle=True, seed=1), lt.DataLoader(ours, SIZE, shuffle=True, seed=2)
    want = []
    for _ in range(2):
        order = []
        for number, batch in enumerate(train):
            order += batch.tolist()
            if number == 3:
                other = digest(read(check))
        want.append((digest(order), other))
    assert list(zip(digests(entry_of(train)), digests(entry_of(check)))) == want
    assert entry_of(train)["divergences"] == entry_of(check)["divergences"] == 0


def test_requests_of_the_program_itself(folder, root):
    """A request of the program itself counts for the server's own job: before, during and after a loop, and after a loader's requests for single samples in this thread."""
    ours = lt.Dataset(folder.root, index, cache=root)
    loader = lt.DataLoader(data.ConcatDataset([ours]), SIZE, shuffle=True, seed=1)
    asked = 0
    for batch in loader:
        assert (ours[int(batch[0])], ours[3], ours.job.get([4]).indices[0]) == (int(batch[0]), 3, 4)
        asked += 3
    assert ours[7] == 7
    assert (entries(ours)[""]["samples_delivered"], entry_of(loader)["samples_delivered"]) == (asked + 1, 240)


def test_ordinals(folder, root):
    """A loader keeps its job. A new loader over the same dataset, as when a notebook's cell runs again, is another job."""
    ours = lt.Dataset(folder.root, index, cache=root)
    first, never = lt.DataLoader(ours, SIZE), lt.DataLoader(ours, SIZE)
    read(first)
    token = first.job_token
    read(first)
    assert first.job_token == token and never.job_token is None
    second = lt.watch(data.DataLoader(ours, SIZE))
    next(iter(second))
    assert int(second.job_token.rsplit("/", 1)[1]) == int(token.rsplit("/", 1)[1]) + 1


@pytest.mark.parametrize("kind", ["none", "fork", "persistent"])
def test_a_dropped_loader_leaves_its_job(folder, root, kind):
    """A dropped loader's connections end, so the server can end the job. The dataset's own job continues."""
    gc.collect()
    gc.disable()
    try:
        ours = lt.Dataset(folder.root, index, cache=root)
        loader = lt.DataLoader(ours, SIZE, shuffle=True, seed=1, **WORKERS[kind])
        read(loader)
        token = loader.job_token
        assert entries(ours)[token]["connections"] >= 1
        del loader
        until(lambda: entries(ours)[token]["connections"] == 0, "the end of the connections of a loader that is gone")
        assert ours[5] == 5 and entries(ours)[token]["connections"] == 0
    finally:
        gc.enable()


def test_many_loaders_one_after_the_other(folder, root):
    """More loaders than the server reads ahead for: ended ones do not take a place."""
    ours = lt.Dataset(folder.root, index, cache=root)
    for seed in range(12):
        loader = lt.DataLoader(ours, SIZE, shuffle=True, seed=seed)
        want = digest(read(loader))
        assert digests(entry_of(loader)) == [want] and not entry_of(loader)["on_demand"]


def test_a_server_that_refuses_more_jobs(folder, root, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "lcache")
    ours = lt.Dataset(folder.root, index, cache=root)
    refused = lcache.ArgumentError("no server takes more")
    attach = lcache.job.Job.attach
    monkeypatch.setattr(lcache.job.Job, "attach", lambda job, *a, **k: attach(job, *a, **k) if job.token is None else (_ for _ in ()).throw(refused))
    loader = lt.DataLoader(ours, SIZE, shuffle=True, seed=1, num_workers=1)
    want = digest(read(loader))
    assert loader.job_token is None and digests(entries(ours)[""]) == [want]
    assert caplog.text.count("no server takes more") == 1


@pytest.mark.parametrize("kind", ["none", "spawn"])
def test_a_job_that_the_program_names(folder, root, kind):
    """A job that the program names is that of all the dataset's loaders, and of the program's own requests."""
    ours = lt.Dataset(folder.root, index, cache=root, job="mine")
    train, check = lt.DataLoader(ours, SIZE, shuffle=True, seed=1, **WORKERS[kind]), lt.DataLoader(data.Subset(ours, range(50)), SIZE)
    want = digest(read(train))
    read(check)
    assert ours[3] == 3 and ours.job.token == "mine" and train.job_token is None
    found = entries(ours)
    assert set(found) == {"mine"} and found["mine"]["samples_delivered"] == 240 + 50 + 1
    assert digests(found["mine"]) == [want]
    other = lt.ImageFolder(folder.root, decode=bytes, ext=(), cache=root, job="theirs")
    assert other.job.token == "theirs"
    with lcache.open(folder.root, root, job="third") as job:
        loader = lt.DataLoader(lt.Dataset(job=job, decode=index), SIZE)
        read(loader)
        assert entry_of(loader)["id"] == "third"


def test_a_server_without_jobs(path, serve):
    """With an older server, which has only one job, one of the loaders pushes its order."""
    server = serve(features=["report"])
    ours = lt.Dataset(socket=path, decode=index)
    train, check = lt.DataLoader(ours, 100, shuffle=True, seed=1), lt.DataLoader(ours, 100)
    for loader in (train, check):
        assert sorted(read(loader)) == list(range(1000)) and loader.job_token is None
    assert protocol.JOB not in [kind for kind, _ in server.requests]
    assert not check.batch_sampler.order_ahead._pusher._ownership.held


def test_the_line_is_about_the_loops_own_job(folder, root, caplog):
    """The digests of a small loader are right while a large one is used."""
    caplog.set_level(logging.INFO, "lcache")
    ours = lt.Dataset(folder.root, index, cache=root)
    train, check = lt.DataLoader(ours, SIZE, shuffle=True, seed=1), lt.DataLoader(data.Subset(ours, range(30)), SIZE)
    read(train)
    loop = iter(check)
    read(loop)
    said = loop._report._status()
    assert (said["id"], said["owner"], said["samples_delivered"], said["kept_bytes"]) == (check.job_token, False, 30, entry_of(train)["kept_bytes"])
    assert said["kept_bytes"] > 0
    own = sum(len(folder.contents[i]) for i in range(30))
    assert loop._report._own_bytes(said) == own
    assert caplog.text.count("exact") == 2


@needs_binary
@pytest.mark.parametrize("kind", ["none", "fork"])
def test_the_layout_of_ingest_is_used(folder, tmp_path, kind):
    """After `lcache ingest` with the loader's recipe, the loop reads only the log, in its order. Only batches requested before the second one have no position yet."""
    server = Server(folder, tmp_path / "cache", epochs=3, seed=5)
    server.ingest()
    server.start()
    try:
        ours = lt.Dataset(socket=server.socket, decode=index)
        sampler = data.DistributedSampler(ours, 1, 0, seed=5)
        loader = lt.DataLoader(ours, SIZE, sampler=sampler, **WORKERS[kind])
        for epoch in range(3):
            loader.set_epoch(epoch)
            assert read(loader) == server.order(epoch, 0)
        said, early = entry_of(loader), SIZE * (5 if "num_workers" in WORKERS[kind] else 1)  # two workers get two batches each, and one more is drawn
        assert said["owner"] and said["divergences"] == 0 and digests(said) == [digest(server.order(epoch, 0)) for epoch in range(3)]
        assert (said["misses"], said["source_reads"], said["sort_bytes"]) == (0, 0, 0)
        assert said["hits"] == 3 * 240 and said["random_reads"] == early
        assert [(epoch["hits"], epoch["misses"]) for epoch in said["epochs_done"]] == [(240 - early, 0), (240, 0), (240, 0)]
        del loader
        ours.job.close()
    finally:
        server.stop()


RANKS = """
import json, os, sys
import torch.utils.data as data
import lcache.torch as lt

source, cache, out = sys.argv[1:]
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ours = lt.Dataset(source, lambda _, sample: sample.index, cache=cache, world_size=world)
part = data.Subset(ours, range(0, 240, 2))
seen = []
train = lt.DataLoader(ours, 16, sampler=data.DistributedSampler(ours, world, rank, seed=3), num_workers=1, multiprocessing_context="fork")
check = lt.DataLoader(part, 16, sampler=data.DistributedSampler(part, world, rank, shuffle=False))
for epoch in range(2):
    train.set_epoch(epoch), check.set_epoch(epoch)
    seen += [[i for batch in loader for i in batch.tolist()] for loader in (train, check)]
with open(f"{out}-{rank}", "w") as f:
    json.dump({"seen": seen, "tokens": [train.job_token, check.job_token], "pid": os.getpid()}, f)
open(f"{out}-{rank}.done", "w").close()
while not all(os.path.exists(f"{out}-{r}.done") for r in range(world)):
    pass
"""


@pytest.mark.parametrize("launcher", ["torchrun", "torchrun without an id", "slurm"])
def test_ranks_are_one_job(folder, root, tmp_path, monkeypatch, launcher):
    """Two processes of one run: two jobs with two ranks each. Each process gets its part, and the digest is that of the whole order."""
    script = tmp_path / "ranks.py"
    script.write_text(RANKS)
    given = {"torchrun": {"TORCHELASTIC_RUN_ID": "night"}, "torchrun without an id": {"TORCHELASTIC_RUN_ID": "none"},
             "slurm": {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0"}}[launcher]
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    ranks = start_ranks(2, str(script), folder.root, root, str(tmp_path / "out"))
    for rank in ranks:
        _, errors = rank.communicate(120)
        assert rank.returncode == 0, errors
    results = [json.loads((tmp_path / f"out-{rank}").read_text()) for rank in range(2)]
    assert results[0]["tokens"] == results[1]["tokens"]
    names = {"torchrun": "night/", "torchrun without an id": "127.0.0.1:", "slurm": "slurm-77.0/"}
    assert all(token.startswith(names[launcher]) for token in results[0]["tokens"])
    found = entries(lt.Dataset(folder.root, index, cache=root))
    assert set(found) == set(results[0]["tokens"])
    for place, token in enumerate(results[0]["tokens"]):
        entry = found[token]
        assert {r["rank"]: r["pid"] for r in entry["ranks"] if r["pid"]} == {0: results[0]["pid"], 1: results[1]["pid"]}
        assert entry["divergences"] == 0 and entry["samples_delivered"] == 2 * (240, 120)[place]
        both = [[i for pair in zip(*(result["seen"][place + 2 * epoch] for result in results)) for i in pair] for epoch in range(2)]
        assert all(sorted(order) == list(range(0, 240, 1 + place)) for order in both)
        assert None not in digests(entry) and len(digests(entry)) == 2


KILLED = """
import json, os, signal, sys
import lcache.torch as lt
from lcache.torch._order.ranks import digest

ours = lt.Dataset(sys.argv[1], lambda _, sample: sample.index, cache=sys.argv[2])
loader = lt.DataLoader(ours, 4, shuffle=True, seed=1, num_workers=2, multiprocessing_context="fork")
want = [digest([i for batch in loader for i in batch.tolist()])]
tokens, failed = [loader.job_token], ""
try:
    for number, _ in enumerate(loop := iter(loader)):
        if number == 1:
            os.kill(loop._workers[0].pid, signal.SIGKILL)
except (RuntimeError, OSError, EOFError) as e:
    failed = repr(e)
del loop
loader.set_epoch(2)
want.append(digest([i for batch in loader for i in batch.tolist()]))
tokens.append(loader.job_token)
json.dump([want, tokens, failed, ours.job.stats()["jobs"]], sys.stdout)
"""


def test_a_worker_that_is_killed(folder, root, tmp_path):
    """If a worker is killed, the loop fails as in torch. The next loop continues in the same job, in order."""
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    out, errors = Program(str(script), folder.root, root).communicate(120)
    want, tokens, failed, jobs = json.loads(out or pytest.fail(errors))
    found = {entry["id"]: entry for entry in jobs}
    assert failed and tokens[0] == tokens[1] and set(found) == {tokens[0]}
    said = found[tokens[0]]
    assert (digests(said)[0], digests(said)[-1], said["divergences"]) == (*want, 0)


def test_a_server_that_starts_again(folder, root):
    """A restarted server gets the same jobs, and their orders."""
    ours = lt.Dataset(folder.root, index, cache=root)
    loaders = [lt.DataLoader(ours, SIZE, shuffle=True, seed=seed) for seed in (1, 2)]
    for loader in loaders:
        read(loader)
    pid = ours.job.pid
    os.kill(pid, signal.SIGTERM)
    wait_for_end(pid)
    want = {loader.job_token: digest(read(loader)) for loader in loaders}
    found = entries(ours)
    assert {token: digests(found[token]) for token in want} == {token: [order] for token, order in want.items()}
    assert ours.job.pid != pid


PROGRAM = """
import sys
import lcache.torch as lt
loader = lt.DataLoader(lt.Dataset(sys.argv[1], lambda _, sample: sample.index, cache=sys.argv[2]), 16)
list(loader)
print(loader.job_token)
"""


def test_programs_are_jobs_of_their_own(folder, root, tmp_path):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    said = [Program(str(script), folder.root, root).communicate(120)[0].strip() for _ in range(2)]
    assert len(set(said)) == 2 and all(token.startswith("pid-") and token.endswith("/0") for token in said)
