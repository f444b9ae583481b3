"""A program's source determines its server, and its options determine its order: under `lcache run`, with other running servers, and if cache= names a
cache itself."""

import json
import logging
import os
import pickle
import shutil
import subprocess
import sys

import pytest
import realserver
from embedded_servers import folder, root, servers  # noqa: F401

import lcache

torch = pytest.importorskip("torch", reason="torch is not installed")
from lcache.torch import Dataset, ImageFolder  # noqa: E402

# Prints for a job or an ImageFolder over argv[2]: the number of samples, whether each equals its file, and whether the server is that of lcache run.
# Only one kind imports torch, which takes seconds.
SCRIPT = """
import os, sys
kind, source, root, options = sys.argv[1], sys.argv[2], sys.argv[3], eval(sys.argv[4])
sys.path.insert(0, os.environ["DEMO"])
from demo_reader import image_folder
if kind == "ImageFolder":
    import lcache.torch
    data = lcache.torch.ImageFolder(source, decode=bytes, cache=root, **options)
    job, got = data.job, list(data)
else:
    import lcache
    job = lcache.open(source, root, **options)
    batch = job.get(range(job.samples))
    got = [(bytes(view), label) for view, label in zip(batch.samples, batch.labels)]
want = [(open(path, "rb").read(), label) for path, label in image_folder(source) if not path.endswith("Thumbs.db")]
print(len(got), got == want, job.pid == os.getppid(), flush=True)
"""
PICTURES = "dict(ext=('.jpg', '.jpeg', '.png'))"


def run(sources, root, cache, kind, named, options="{}", flags=()):
    """The script under `lcache run`: (its stdout, stderr, run's summary)."""
    command = [realserver.BINARY, "run", *[f"--source={s}" for s in sources], "--cache", cache, "--quiet=false", "--json", *flags, "--"]
    env = {**os.environ, "DEMO": os.path.join(realserver.ROOT, "cmd", "lcache", "internal", "demo"), "LCACHE_LINGER": "0.1"}
    done = subprocess.run([*command, sys.executable, "-c", SCRIPT, kind, named, root, options], capture_output=True, text=True, env=env, timeout=120)
    assert done.returncode == 0, done.stderr
    said, summary = done.stdout.split("\n", 1)
    return said, done.stderr, json.loads(summary)["sources"]


def copied(folder, path, ext=".png"):
    for name, _ in folder.files[:40]:
        to = os.path.join(path, os.path.relpath(name, folder.root))[: -len(".bin")] + ext
        os.makedirs(os.path.dirname(to), exist_ok=True)
        shutil.copy(name, to)
    return str(path)


@pytest.fixture(scope="module")
def pictures(folder, tmp_path_factory):
    top = tmp_path_factory.mktemp("imgs")
    for name in "train", "val":
        copied(folder, top / name)
    first = next(os.scandir(top / "val")).path
    with open(os.path.join(first, "0-more.png"), "wb") as f:
        f.write(b"another one")
    return top


def test_another_folder_under_run(pictures, root):
    """The validation set is not the training set, and both sources are named."""
    train, val = str(pictures / "train"), str(pictures / "val")
    said, err, (of_run,) = run([train], root, root + "-run", "ImageFolder", val)
    assert said == "41 True False", err
    warnings = [line for line in err.splitlines() if "starting a server" in line]
    assert len(warnings) == 1 and val in warnings[0] and f"LCACHE_SOCKET serves {train}" in warnings[0]
    assert of_run["exact"] == "no sample was read from this server"


def test_the_same_folder_under_run(pictures, root, tmp_path):
    """A server without a filter fits an ImageFolder whose filter removes nothing. A link to the directory counts as the directory."""
    link = tmp_path / "link"
    link.symlink_to(pictures / "train")
    for kind, named, options in (
        ("ImageFolder", str(pictures / "train"), "dict(budget='1GB', memory='200MB', batch_size=7)"),
        ("open", str(link), PICTURES),
        ("open", str(pictures / "train"), "dict(ext=['PNG'], timeout=30)"),
    ):
        said, err, (of_run,) = run([str(pictures / "train")], root, root + "-run", kind, named, options)
        assert said == "40 True True" and "starting a server" not in err, err
        assert of_run["status"]["jobs"][0]["samples_delivered"] == 40
    assert not os.path.exists(root), "no cache of the script's own"


def test_a_filter_that_removes_something(folder, root, tmp_path):
    """Thumbs.db would shift all later indices."""
    source = copied(folder, tmp_path / "imgs")
    with open(os.path.join(source, "class0", "Thumbs.db"), "wb") as f:
        f.write(b"no picture")
    said, err, _ = run([source], root, root + "-run", "open", source, PICTURES)
    assert said == "40 True False" and "listed with ext of any kind, not .jpg,.jpeg,.png" in err
    said, err, _ = run([source], root, root + "-run", "open", source, PICTURES, flags=["--ext", ".png,.jpg"])
    assert said == "40 True False" and "listed with ext .png,.jpg, not" in err, "a wider filter may accept files that were removed"
    said, err, _ = run([source], root, root + "-run", "open", source, "dict(ext=('.jpg', '.png'))", flags=["--ext", ".png,.jpg"])
    assert said == "40 True True", err


def test_sources_with_names(pictures, root):
    train, val = str(pictures / "train"), str(pictures / "val")
    for named, count in ((train, 40), (val, 41)):
        said, err, of_run = run([f"train={train}", f"val={val}"], root, root + "-run", "open", named, PICTURES)
        assert said == f"{count} True True" and "starting a server" not in err, err
        assert [s["status"]["jobs"][0]["samples_delivered"] for s in of_run] == [40 * (count == 40), 41 * (count == 41)]


def test_names_and_flags_of_the_environment(folder, root, monkeypatch):
    """~ is the user's home, as in torchvision. A variable that sets a flag of lcache run does not change the program's source."""
    monkeypatch.setenv("HOME", os.path.dirname(folder.root))
    monkeypatch.setenv("LCACHE_EXT", ".jpg")
    monkeypatch.setenv("LCACHE_FLAT", "1")
    data = ImageFolder("~/train", decode=bytes, cache=root, ext=[".bin"])
    with data.job:
        assert data.job.source == folder.root and data[0] == (folder.contents[0], folder.labels[0]) and data.samples[0] == folder.files[0]


def test_a_dead_socket(folder, root, monkeypatch, caplog, tmp_path):
    monkeypatch.setenv("LCACHE_SOCKET", str(tmp_path / "gone.sock"))
    with lcache.open(folder.root, root) as job:
        assert job.samples == len(folder)
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert folder.root in warning and f"LCACHE_SOCKET: no server at {tmp_path}/gone.sock" in warning


def test_a_socket_of_another_source(folder, pictures, root):
    with lcache.open(folder.root, root) as job:
        path = job._link.path
        with pytest.raises(lcache.ArgumentError, match=f"{path} serves {folder.root}, and the program names {pictures}/val: .*leave out the source"):
            ImageFolder(pictures / "val", socket=path)
        with pytest.raises(lcache.ArgumentError, match="ext of any kind, not .jpg"):
            ImageFolder(folder.root, socket=path)
        with pytest.raises(lcache.ArgumentError, match="budget, ext: give a source, too"):
            Dataset(socket=path, ext=[".bin"], budget="1GB")
        for same in (Dataset(folder.root, socket=path, budget="1GB"), Dataset(folder.root, socket=path, ext=["bin"]), Dataset(socket=path)):
            assert same.job.pid == job.pid and len(same) == len(folder)


def test_a_directory_that_was_replaced(folder, root, tmp_path):
    """The path now leads to other files, and the server still has the old ones."""
    source = copied(folder, tmp_path / "imgs")
    with lcache.open(source, root):
        shutil.move(source, tmp_path / "old")
        copied(folder, source)
        with pytest.raises(lcache.ArgumentError, match="has become another directory: stop that server first"):
            lcache.open(source, root)


ORDER = dict(recipe="torch.distributed_sampler", batch_size=16, epochs=2)


def indices(job, epoch):
    return [i for batch in job.epoch(epoch) for i in batch.indices]


def test_another_seed_within_the_linger(folder, root):
    """Each job on the same server has the order that it names. The second run does not read the source again."""
    n = len(folder)
    with lcache.open(folder.root, root, seed=0, **ORDER) as job:
        pid = job.pid
        assert [indices(job, e) for e in range(2)] == [realserver.distributed_sampler(n, 0, e, 1, 0) for e in range(2)]
    with lcache.open(folder.root, root, seed=1, **ORDER) as job:
        assert (job.pid, job.seed, job.epochs) == (pid, "1", 2)
        copy = pickle.loads(pickle.dumps(job))
        assert [indices(job, e) for e in range(2)] == [realserver.distributed_sampler(n, 1, e, 1, 0) for e in range(2)]
        with copy:
            assert (copy.seed, copy._replay) == ("1", job._replay)
    with lcache.open(folder.root, root, seed=0, **ORDER) as first, lcache.open(folder.root, root, seed=2, **ORDER) as second:
        assert (first.pid, first._replay, second.pid) == (pid, None, pid)
        both = [(list(a.indices), list(b.indices)) for a, b in zip(first.epoch(0), second.epoch(0))]
        for seed, read in zip((0, 2), zip(*both)):
            assert sum(read, []) == realserver.distributed_sampler(n, seed, 0, 1, 0), f"seed {seed}, while another job has another seed"
    with lcache.open(folder.root, root, seed=0, **{**ORDER, "batch_size": 5, "epochs": 1}) as job:
        assert (job.pid, job.batch_size, job.epochs) == (pid, 5, 1)
        batches = [list(batch.indices) for batch in job.epoch(0)]
        assert [len(b) for b in batches] == [5] * (n // 5) and sum(batches, []) == realserver.distributed_sampler(n, 0, 0, 1, 0)


def test_another_order_while_one_is_read(folder, root):
    """The first job's order stays. The second one gets an error with both values, and never the first one's order."""
    script = "import lcache, sys; job = lcache.open(sys.argv[1], sys.argv[2], seed=0, recipe='torch.distributed_sampler', batch_size=16)\n" \
             "batches = job.epoch(0); next(batches); print('reads', flush=True); sys.stdin.read()"
    first = subprocess.Popen([sys.executable, "-c", script, folder.root, root], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert first.stdout.readline() == "reads\n"
    try:
        with lcache.open(folder.root, root, seed=1, recipe="torch.distributed_sampler", batch_size=16) as job:
            with pytest.raises(lcache.ArgumentError, match=f"seed='1', where it has '0'.*process {first.pid} reads rank 0"):
                indices(job, 0)
            assert len(job.get(range(10))) == 10
    finally:
        first.communicate("")


def test_an_order_behind_a_program_without_one(folder, root):
    """A server without order and world size, such as one that a loader started, accepts any."""
    with lcache.open(folder.root, root, batch_size=16) as job:
        assert (job.recipe, job.world) == ("", 0)
    with lcache.open(folder.root, root, seed=3, **ORDER) as again:
        assert again.pid == job.pid and (again.recipe, again.world) == (ORDER["recipe"], 1)
        for epoch in range(2):
            assert indices(again, epoch) == realserver.distributed_sampler(len(folder), 3, epoch, 1, 0)


def test_a_running_server_refuses_other_options(folder, root):
    with lcache.open(folder.root, root, seed=0, on_error="skip", **ORDER) as job:
        for more, message in (
            ({"on_error": "fail"}, "on_error='fail'.*has on_error='skip'"),
            ({}, "on_error='fail'.*has on_error='skip'"),
            ({"on_error": "skip", "world_size": 2, "rank": 0}, "world_size=2.*has world_size=1"),
            ({"on_error": "skip", "epochs": 90}, "epochs=90.*has epochs=2"),
        ):
            with pytest.raises(lcache.ArgumentError, match=message):
                lcache.open(folder.root, root, seed=0, **{**ORDER, **more})
        with lcache.open(folder.root, root, seed=0, on_error="skip", **ORDER) as again:
            assert again.pid == job.pid


def test_sizes_never_decide(folder, root, caplog):
    caplog.set_level(logging.INFO, "lcache")
    with lcache.open(folder.root, root, budget="100MB") as job, lcache.open(folder.root, root, budget="200MB", memory="300MB") as again:
        assert again.pid == job.pid and again._replay is None
    assert [r.getMessage() for r in caplog.records if "budget" in r.getMessage()] == [f"budget= and memory= have no effect on the running server (pid {job.pid})"]


def test_a_cache_itself(pictures, root, tmp_path):
    """A prefilled cache is used with its own options, and the source is not read again."""
    train, cache = str(pictures / "train"), str(tmp_path / "c1")
    flags = ("--recipe", "torch.distributed_sampler", "--seed", "3", "--batch-size", "8", "--epochs", "3", "--memory", "100MB")
    realserver.lcache_command("ingest", "--source", train, "--cache", cache, "--quiet", *flags)
    with lcache.open(train, cache) as job:
        assert (job.recipe, job.seed, job.batch_size, job.epochs) == ("torch.distributed_sampler", "3", 8, 3)
        assert indices(job, 0) == realserver.distributed_sampler(40, 3, 0, 1, 0)
        assert job.stats()["jobs"][0]["source_reads"] == 0
        assert servers(cache[:-3]) == [job.pid]
        data = ImageFolder(train, cache=cache)  # its filter removes nothing
        assert data.job.pid == job.pid
    assert [c["dir"] for c in realserver.lcache_command("ls", cache, "--json").json["caches"]] == [cache]
    with pytest.raises(lcache.ArgumentError, match=f"{cache} is the cache of {train}, and the program names {pictures}/val: give another cache="):
        lcache.open(pictures / "val", cache)
    with pytest.raises(lcache.ArgumentError, match="listed with flat False, not True"):
        lcache.open(train, cache, flat=True)


def test_a_cache_itself_by_the_environment(pictures, root, tmp_path, monkeypatch):
    train, cache = str(pictures / "train"), str(tmp_path / "c1")
    realserver.lcache_command("ingest", "--source", train, "--cache", cache, "--quiet", "--no-prefill")
    monkeypatch.setenv("LCACHE_CACHE", cache)
    link = tmp_path / "link"
    link.symlink_to(train)
    with lcache.open(link) as job:
        assert job._link.path == os.path.join(cache, "lcache.sock")
        assert len(job.get(range(40))) == 40
