"""lcache.open starts a server, which other processes find, and which ends soon after its last client."""

import fcntl
import os
import pickle
import re
import signal
import subprocess
import sys

import pytest
import realserver
from embedded_servers import folder, root, servers  # noqa: F401
from waits import wait_for_end

import lcache

READER = """
import signal, sys, lcache
signal.signal(signal.SIGINT, signal.default_int_handler)  # programs that a shell starts in the background ignore SIGINT
job = lcache.open(sys.argv[1], sys.argv[2])
print(job.pid, job.rank, len(job.get(range(10))), flush=True)
sys.stdin.read()
"""


def reader(folder, root, **more):
    streams = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return subprocess.Popen([sys.executable, "-c", READER, folder.root, root], **{**streams, **more})


def check(job, folder):
    batch = job.get(range(len(folder)))
    assert list(batch.labels) == folder.labels
    assert [bytes(view) for view in batch.samples] == folder.contents
    return batch


def test_server_of_its_own(folder, root, monkeypatch):
    monkeypatch.setenv("LCACHE_LINGER", "1")
    with lcache.open(folder.root, root) as job:
        check(job, folder)
        pid = job.pid
        assert os.getsid(pid) != os.getsid(0)
        (name,) = os.listdir(root)
        assert re.fullmatch(r"train-[0-9a-f]{8}", name)
        with lcache.open(folder.root, root) as other:
            assert other.pid == pid
        assert servers(root) == [pid]
    wait_for_end(pid)


def test_recipe(folder, root, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    with lcache.open(folder.root, root, recipe="torch.distributed_sampler", seed=3, epochs=2, batch_size=16) as job:
        assert (job.world, job.rank, job.ranks, job.epochs, job.batch_size, job.seed) == (2, 1, [0, 1], 2, 16, "3")
        want = realserver.distributed_sampler(len(folder), 3, 0, 2, 1)
        assert [i for batch in job.epoch(0) for i in batch.indices] == want


@pytest.mark.parametrize("order", [{}, {"recipe": "torch.distributed_sampler", "seed": 3, "batch_size": 16}])
def test_several_machines(folder, root, monkeypatch, order):
    """The cache has the launcher's ranks on this machine. So its samples keep their places, and importance is refused."""
    for name, value in {"WORLD_SIZE": "8", "RANK": "5", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    with lcache.open(folder.root, root, **order) as job:
        assert (job.world, job.rank, job.ranks) == (8, 5, [4, 5, 6, 7])
        status = job.stats()["jobs"][0]
        assert status["layout"] == "static" and status["layout_reason"].startswith("4 of 8 ranks are served here")
        with pytest.raises(lcache.ArgumentError, match=r"job\.importance needs all ranks on one machine: 8 in all, 4 here \[LC007\]$"):
            job.importance("shade", batch_size=16)


def test_memory_is_shared_by_the_ranks(folder, root, monkeypatch):
    """Also without a recipe, each rank may hold its share of the memory that one process could hold."""
    shares = {}
    for world in (1, 4):
        with lcache.open(folder.root, root + str(world), world_size=world, batch_size=16, memory="64MiB") as job:
            shares[world] = job._link.session.info.credit_bytes
            assert job.ranks == list(range(world))
    assert 0 < shares[4] < shares[1] / 3
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "1")
    with lcache.open(folder.root, root + "5", batch_size=16) as job:
        assert (job.world, job.rank) == (4, 1)


def test_eight_at_once(folder, root):
    processes = [reader(folder, root, env={**os.environ, "WORLD_SIZE": "8", "RANK": str(r), "LOCAL_RANK": str(r), "LOCAL_WORLD_SIZE": "8"}) for r in range(8)]
    lines = [p.stdout.readline().split() for p in processes]
    errors = [p.communicate("")[1] for p in processes]
    assert [p.returncode for p in processes] == [0] * 8, errors
    assert len({line[0] for line in lines}) == 1
    assert [line[1:] for line in lines] == [[str(r), "10"] for r in range(8)]


def test_waiting_names_the_holder(folder, root):
    from lcache._client.cachedirs import folders

    (cache,) = folders(folder.root, root)
    os.makedirs(cache)
    fd = os.open(os.path.join(cache, "open.lock"), os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.write(fd, b"4711: listing, 34 %")
    waiting = reader(folder, root)
    assert waiting.stderr.readline() == "lcache: waiting for pid 4711: listing, 34 %\n"
    os.close(fd)
    assert waiting.stdout.readline().split()[1:] == ["0", "10"]
    (line,) = waiting.communicate("")[1].splitlines()
    assert "copied to" in line


def test_waiting_ends(folder, root):
    from lcache._client.cachedirs import folders

    (cache,) = folders(folder.root, root)
    os.makedirs(cache)
    fd = os.open(os.path.join(cache, "open.lock"), os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.write(fd, b"4711: stuck")
    with pytest.raises(lcache.TimeoutError, match="4711: stuck"):
        lcache.open(folder.root, root, timeout=0.3)
    os.close(fd)


def test_server_killed(folder, root):
    with lcache.open(folder.root, root) as job:
        before, batch = job.pid, job.get([7, 3])
        os.kill(before, signal.SIGKILL)
        check(job, folder)
        assert job.pid != before
        assert [bytes(view) for view in batch.samples] == [folder.contents[7], folder.contents[3]]


def test_ctrl_c_reaches_only_the_trainer(folder, root):
    trainer = reader(folder, root, start_new_session=True)
    pid = int(trainer.stdout.readline().split()[0])
    os.killpg(trainer.pid, signal.SIGINT)
    assert trainer.wait(timeout=60) != 0  # its stdin is still open, so the signal ended it
    trainer.communicate()
    with lcache.open(folder.root, root) as job:
        assert job.pid == pid


def test_trainer_killed(folder, root):
    trainer = reader(folder, root, env={**os.environ, "LCACHE_LINGER": "0.2"})
    pid = int(trainer.stdout.readline().split()[0])
    trainer.kill()
    trainer.communicate()
    wait_for_end(pid)


@pytest.mark.parametrize("linger", ["0", "0s", "0.0"])
def test_linger_zero_ends_with_the_last_client(folder, root, monkeypatch, linger):
    monkeypatch.setenv("LCACHE_LINGER", linger)
    with lcache.open(folder.root, root) as job:  # not before its first client
        pid = job.pid
        assert len(job.get([0])) == 1
    wait_for_end(pid)


@pytest.mark.parametrize("linger", ["abc", "-5", "1e3", "5 s", "2d", "inf"])
def test_invalid_linger(folder, root, monkeypatch, linger):
    monkeypatch.setenv("LCACHE_LINGER", linger)
    with pytest.raises(lcache.Error, match=f"LCACHE_LINGER='{linger}': give the time"):
        lcache.open(folder.root, root)
    assert not os.path.exists(root) or not any("FORMAT" in names for _, _, names in os.walk(root)), "it was listed before"


@pytest.mark.parametrize("linger", ["1.5", "2m", " 20 ", "", ".5"])
def test_linger_that_is_a_time(folder, root, monkeypatch, linger):
    monkeypatch.setenv("LCACHE_LINGER", linger)
    with lcache.open(folder.root, root) as job:
        os.kill(job.pid, 0)


def test_clear_errors(folder, root, monkeypatch):
    with pytest.raises(lcache.Error, match="nowhere"):
        lcache.open(folder.root + "/nowhere", root)
    monkeypatch.setenv("LCACHE_BIN", "/no/such/lcache")
    with pytest.raises(lcache.Error, match="/no/such/lcache.*LCACHE_BIN"):
        lcache.open(folder.root, root + "2")


def test_two_listings_of_one_source(folder, root):
    with lcache.open(folder.root, root) as tree, lcache.open(folder.root, root, flat=True) as flat:
        assert tree.pid != flat.pid
        assert len(tree.classes) == 5 and len(flat.classes) <= 1
        assert tree.samples == flat.samples == len(folder)


def test_one_ending(root, tmp_path):
    """ext may be one ending: a str is not a sequence of letters."""
    for name in ("a.jpg", "b.jpg", "c.txt"):
        (tmp_path / "files").mkdir(exist_ok=True)
        (tmp_path / "files" / name).write_bytes(name.encode())
    for ext in (".jpg", "jpg", [".jpg"]):
        with lcache.open(tmp_path / "files", root, ext=ext) as job:
            assert list(job.get([0, 1]).names) == ["a.jpg", "b.jpg"] and job.samples == 2


def test_pickle(folder, root):
    with lcache.open(folder.root, root) as job:
        small = pickle.dumps(job)
        assert len(small) < 1280
        with pickle.loads(small) as copy:
            check(copy, folder)


def test_labels(folder, root, tmp_path):
    names = [os.path.relpath(path, folder.root) for path, _ in folder.files]
    texts = [("odd", "even")[i % 2 == 0] for i in range(len(folder))]
    table = tmp_path / "labels.csv"
    table.write_text("name,label\n" + "".join(f"{name},{text}\n" for name, text in sorted(zip(names, texts), reverse=True)))
    with lcache.open(folder.root, root) as plain, lcache.open(folder.root, root, labels=table) as job:
        assert job.classes == ["even", "odd"] and job.fingerprint != plain.fingerprint
        batch = job.get(range(len(folder)))
        assert [job.classes[label] for label in batch.labels] == texts
        assert [bytes(view) for view in batch.samples] == folder.contents
    table.write_text("name,label\n")
    with pytest.raises(lcache.Error, match=f"{len(folder)} of {len(folder)} samples have no label"):
        lcache.open(folder.root, root, labels=tmp_path / "again" / ".." / "labels.csv", flat=True)


def test_parts(root, tmp_path):
    import torch.utils.data

    from lcache.torch import Dataset

    for i in range(20):
        for ext, data in ((".jpg", b"image %d" % i), (".json", b"{%d}" % i)):
            path = tmp_path / "pairs" / f"c{i % 2}" / f"{i:02d}{ext}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    with_parts = Dataset(tmp_path / "pairs", lambda data, sample: (data, sample.parts, tuple(sample)), cache=root, group="stem")
    plain = Dataset(tmp_path / "pairs", lambda data, sample: (data, sample.parts, tuple(sample)), cache=root)
    with with_parts.job, plain.job:
        assert (len(with_parts), len(plain)) == (20, 40)
        loaded = [x for batch in torch.utils.data.DataLoader(with_parts, batch_size=8, collate_fn=list) for x in batch]
        for i, (data, parts, (index, name, label, again)) in enumerate(loaded):
            number = int(name[3:])
            assert (index, name, label) == (i, f"c{label}/{number:02d}", number % 2)
            assert again == parts == {"jpg": b"image %d" % number, "json": b"{%d}" % number} and data == parts["jpg"]
        data, parts, (_, name, _, _) = plain[1]
        assert (name, parts) == ("c0/00.json", {"": data}) and data == b"{0}"


def test_a_server_names_arguments(folder, root):
    """An error for importance names an argument of lcache.open in the program that started the server, and a flag for other clients of the same server."""
    with lcache.open(folder.root, root, batch_size=16, memory="64MiB") as job:
        with pytest.raises(lcache.ArgumentError, match=r"give the server memory=\d+ or more, or a smaller cache"):
            job.importance("shade", cache="10GB")
        with lcache.connect(os.path.join(root, os.listdir(root)[0], "lcache.sock")) as other:
            with pytest.raises(lcache.ArgumentError, match=r"give the server --memory \d+ or more, or a smaller cache"):
                other.importance("shade", cache="10GB")
