"""Tar shards that Python's tarfile (in all its formats) and the webdataset package wrote. A real server reads them, and the samples are compared with both."""

import contextlib
import io
import json
import os
import random
import re
import signal
import subprocess
import tarfile

import pytest
from realserver import BINARY, lcache_command, needs_binary
from test_datasets import started  # noqa: F401 - a fixture
from waits import until

import lcache

pytestmark = [needs_binary, pytest.mark.any_io]
JOB = ["--recipe", "torch.distributed_sampler", "--epochs", "2", "--batch-size", "16"]
LESSER = ("cls", "json", "txt")


def ingest(pattern, cache, *flags):
    return json.loads(lcache_command("ingest", "--source", f"tar:{pattern}", "--cache", cache, "--json", *flags).stdout)


def write(path, members, tar_format=tarfile.PAX_FORMAT):
    with tarfile.open(path, "w", format=tar_format) as shard:
        for name, data in members:
            info = tarfile.TarInfo(name)
            if data is None:
                info.type = tarfile.DIRTYPE
                shard.addfile(info)
            else:
                info.size = len(data)
                shard.addfile(info, io.BytesIO(data))


def wanted(*paths):
    """{sample: {extension: bytes}} by the rules in docs/sources.md, read with tarfile."""
    samples = {}
    for path in paths:
        shard, last = os.path.basename(path), None
        with tarfile.open(path) as tar:
            for member in tar:
                found = re.match(r"^((?:.*/|)[^.]+)[.]([^/]*)$", member.name.removeprefix("./"))
                if not member.isreg() or not found or re.match(r"__[^/]*__($|/)", member.name):
                    continue
                name = f"{shard}/{found[1]}"
                assert name == last or name not in samples
                last = name
                samples.setdefault(name, {})[found[2].lower()] = tar.extractfile(member).read()
    return {name: first_in_front(parts) for name, parts in samples.items()}


def first_in_front(parts):
    first = next((e for e in parts if e not in LESSER), None) or next((e for e in parts if e != "cls"), next(iter(parts)))
    return {first: parts[first], **parts}


def check(batch, samples):
    for i, (name, parts) in enumerate(zip(batch.names, batch.parts)):
        assert {ext: bytes(view) for ext, view in parts.items()} == samples[name]
        assert list(parts) == list(samples[name])
        assert bytes(batch.samples[i]) == next(iter(samples[name].values()))
        if "cls" in parts:
            assert batch.labels[i] == int(parts["cls"].tobytes())
    return list(batch.names)


def check_all(job, samples):
    assert check(job.get(range(len(samples))), samples) == list(samples)
    for epoch in range(2):
        seen = [name for batch in job.epoch(epoch) for name in check(batch, samples)]
        assert sorted(seen) == sorted(samples)


def members(draw, n, label=True, size=20_000):
    for i in range(n):
        key = f"{'./' if i % 5 == 0 else ''}{i:04d}"
        yield f"{key}.JPG" if i % 3 == 0 else f"{key}.jpg", draw.randbytes(draw.choice((0, 1, 511, 512, 513, size)))
        if label:
            yield f"{key}.cls", f"{i - 3}\n".encode()
        if i % 2:
            yield f"{key}.seg.png", draw.randbytes(i)
        if i % 7 == 0:
            yield "folder", None
            yield f"__meta{i}__", b"of the shard"
            yield "README", b"no sample"


@pytest.mark.parametrize("tar_format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_formats_of_tarfile(tmp_path, started, tar_format):  # noqa: F811
    draw = random.Random(tar_format)
    paths = [str(tmp_path / f"t-{i:02d}.tar") for i in range(8, 12)]
    for path in paths:
        some = list(members(draw, 40))
        long = "/".join(["long" * 10] * 3)
        some += [(f"{long}/name.jpg", b"in ustar, too"), (f"{long}/name.cls", b"7")]
        if tar_format != tarfile.USTAR_FORMAT:
            some += [(f"{long * 4}/ü\n.jpg", b"a long name"), (f"{long * 4}/ü\n.cls", b"8")]
        write(path, some, tar_format)
    samples, cache = wanted(*paths), str(tmp_path / "cache")
    made = ingest(tmp_path / "t-{08..11}.tar", cache, *JOB)
    assert (made["samples"], made["bytes"]) == (len(samples), sum(len(d) for parts in samples.values() for d in parts.values()))
    with started(cache) as job:
        check_all(job, samples)
        status = job.stats()["jobs"][0]
        assert (status["misses"], status["source_bytes"], status["corrupt_samples"]) == (0, 0, 0)
    assert ingest(tmp_path / "t-{08..11}.tar", cache, *JOB)["read_bytes"] == 0
    done = lcache_command("verify", "--cache", cache, "--against", f"tar:{tmp_path}/t-*.tar", "--json").json
    assert (done["good"], done["different"]) == (len(samples), 0)


def test_like_webdataset(tmp_path, started):  # noqa: F811
    """Shards that the webdataset package writes, read by it and by lcache."""
    wds = pytest.importorskip("webdataset", reason="the webdataset package is not installed")
    draw = random.Random(3)
    with wds.ShardWriter(str(tmp_path / "w-%06d.tar"), maxcount=40, verbose=0) as out:
        for i in range(100):
            out.write({"__key__": f"d{i % 4}/{i:05d}", "jpg": draw.randbytes(3000), "cls": i % 10, "json": {"i": i}, "a.txt": f"text {i}"})
    pattern = str(tmp_path / "w-{000000..000002}.tar")
    theirs = {}
    for sample in wds.WebDataset(pattern, shardshuffle=False):
        name = f"{os.path.basename(sample['__url__'])}/{sample['__key__']}"
        theirs[name] = first_in_front({k: v for k, v in sample.items() if not k.startswith("__")})
    cache = str(tmp_path / "cache")
    ingest(pattern, cache, *JOB)
    with started(cache) as job:
        assert len(theirs) == 100
        for i, name in enumerate(job.get(range(100)).names):
            assert name == list(theirs)[i]
        check_all(job, theirs)


def test_one_shard_changes(tmp_path, started):  # noqa: F811
    """Only the samples of that shard are read again."""
    draw = random.Random(4)
    paths = [str(tmp_path / f"{i}.tar") for i in range(3)]
    for path in paths:
        write(path, members(draw, 50))
    cache = str(tmp_path / "cache")
    ingest(tmp_path / "{0..2}.tar", cache, *JOB)
    write(paths[1], members(draw, 45, size=30_000))
    changed = wanted(paths[1])
    made = ingest(tmp_path / "{0..2}.tar", cache, *JOB)
    assert (made["changed_samples"], made["removed_samples"], made["added_samples"], made["anew"]) == (45, 5, 0, False)
    assert made["read_bytes"] == sum(len(d) for parts in changed.values() for d in parts.values())
    with started(cache) as job:
        samples = wanted(*paths)
        check_all(job, samples)
        write(paths[0], members(draw, 50))  # the log continues with the ingested samples
        check_all(job, samples)


def test_changed_while_it_is_read(tmp_path, started):  # noqa: F811
    draw = random.Random(5)
    for i in range(2):
        write(tmp_path / f"{i}.tar", members(draw, 20))
    samples = wanted(tmp_path / "0.tar", tmp_path / "1.tar")
    cache = str(tmp_path / "cache")
    ingest(tmp_path / "{0,1}.tar", cache, "--no-prefill")
    write(tmp_path / "1.tar", members(draw, 20))
    with started(cache) as job:
        check(job.get(range(20)), samples)
        with pytest.raises(lcache.SampleError, match=r'1\.tar/0003.*shard "1\.tar": changed since ingest') as error:
            job.get([23])
        assert error.value.sample == "1.tar/0003"
        os.remove(tmp_path / "1.tar")
        with pytest.raises(lcache.SampleError, match=r'shard "1\.tar": gone from the source'):
            job.get([24])


def test_shares_are_whole_shards(tmp_path):
    draw = random.Random(6)
    for i in range(5):
        write(tmp_path / f"{i}.tar", members(draw, 10 + i))
    pattern, cache = tmp_path / "{0..4}.tar", str(tmp_path / "cache")
    # Shards 0 to 2 are the first half of five, 3 and 4 the second.
    assert ingest(pattern, cache, "--share", "0/2")["read_samples"] == 10 + 11 + 12
    made = ingest(pattern, cache, "--share", "1/2")
    assert (made["read_samples"], made["stored_samples"]) == (13 + 14, 60)
    assert ingest(pattern, cache)["read_samples"] == 0


def test_a_killed_ingest_goes_on(tmp_path, started):  # noqa: F811
    """An ingest is killed while it lists and while it reads. In the end all samples are complete."""
    draw = random.Random(7)
    paths = [str(tmp_path / f"{i}.tar") for i in range(12)]
    for path in paths:
        write(path, members(draw, 30, size=100_000))
    samples, cache = wanted(*paths), str(tmp_path / "cache")
    for grows in ("shards", "shards", "journal-0", "journal-0", "journal-0"):
        before = size_of(cache, grows)
        process = subprocess.Popen([BINARY, "ingest", "--source", f"tar:{tmp_path}/{{0..11}}.tar", "--cache", cache, "--progress", "none", *JOB],
                                   env={**os.environ, "LCACHE_TMPFS": "1"}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        until(lambda: process.poll() is not None or size_of(cache, grows) > before, f"growth of {grows}", pause=0.001)
        process.send_signal(signal.SIGKILL)
        assert process.wait() in (0, -signal.SIGKILL), process.stderr.read()
        process.stderr.close()
    made = ingest(tmp_path / "{0..11}.tar", cache, *JOB)
    assert (made["stored_samples"], made["already"] + made["read_samples"]) == (len(samples), len(samples))
    with started(cache) as job:
        check_all(job, samples)
        assert job.stats()["jobs"][0]["misses"] == 0


def size_of(cache, name):
    with contextlib.suppress(FileNotFoundError):
        return os.stat(os.path.join(cache, name)).st_size
    return 0


def test_open_of_shards(tmp_path, monkeypatch):
    """A pattern below the working folder, with its own server."""
    draw = random.Random(8)
    (tmp_path / "data").mkdir()
    paths = [str(tmp_path / "data" / f"{i}.tar") for i in range(2)]
    for path in paths:
        write(path, members(draw, 25, label=False))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LCACHE_BIN", BINARY)
    monkeypatch.setenv("LCACHE_LINGER", "0")
    monkeypatch.setenv("LCACHE_TMPFS", "1")
    samples = wanted(*paths)
    with lcache.open("tar:data/{0..1}.tar", cache=str(tmp_path / "caches"), batch_size=4) as job:
        assert job.source == f"tar:{tmp_path}/data/{{0..1}}.tar"
        assert check(job.get(range(50)), samples) == list(samples)
        assert os.listdir(tmp_path / "caches")[0].startswith("_0..1_.tar-")
    with lcache.open("tar:data/{0..1}.tar", cache=str(tmp_path / "caches"), part="jpg") as job:
        assert check(job.get(range(50)), samples) == list(samples)
    with pytest.raises(lcache.Error, match=r'sample "0\.tar/0000": it has no part "seg\.png": choose another part=, or give all samples one'):
        lcache.open("tar:data/{0..1}.tar", cache=str(tmp_path / "caches"), part="seg.png")
    with pytest.raises(lcache.Error, match=r'shard "2\.tar" is missing: put it there, or correct the pattern'):
        lcache.open("tar:data/{0..2}.tar", cache=str(tmp_path / "caches"))
    assert len(os.listdir(tmp_path / "caches")) == 2
