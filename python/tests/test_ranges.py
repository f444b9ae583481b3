"""lcache.index.write, and the source ranges:INDEX read by a real server."""

import os
import random

import pytest
from realserver import environment, lcache_command, needs_binary

import lcache
import lcache.index


def make(folder, shards=3, rows=40, seed=1):
    """Files of random bytes, and rows of two parts in them, in random order within each file. Returns rows and what each sample must have."""
    draw = random.Random(seed)
    every, want = [], []
    for s in range(shards):
        name = f"d{s % 2}/shard-{s}.bin"
        data = draw.randbytes(200_000)
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        starts = list(range(0, 200_000, 2_000))
        draw.shuffle(starts)
        for i in range(rows):
            parts = {}
            for part in ("jpg", "txt"):
                at, length = starts.pop(), draw.randrange(2_001)
                every.append({"shard": name, "offset": at, "length": length, "part": part, "name": f"{s}-{i}", "label": i % 5})
                parts[part] = data[at : at + length]
            want.append((f"{s}-{i}", i % 5, parts))
    return every, want


@needs_binary
def test_every_sample(tmp_path, monkeypatch):
    for key, value in environment(LCACHE_TMPFS="1").items():
        monkeypatch.setenv(key, value)
    rows, want = make(tmp_path)
    assert lcache.index.write(tmp_path / "index.tsv", iter(rows)) == len(rows)
    with lcache.open(f"ranges:{tmp_path}/index.tsv", cache=tmp_path / "cache", recipe="torch.distributed_sampler", epochs=1, batch_size=16) as job:
        assert job.samples == len(want)
        seen = []
        for batch in job.epoch(0):
            for i, name, label, view, parts in zip(batch.indices, batch.names, batch.labels, batch.samples, batch.parts):
                assert (name, label, {k: bytes(v) for k, v in parts.items()}) == want[i]
                assert bytes(view) == want[i][2]["jpg"]
                seen.append(i)
        assert sorted(seen) == list(range(len(want)))


@needs_binary
def test_a_moved_range_is_read_again(tmp_path):
    rows, want = make(tmp_path, shards=1, rows=20)
    source, cache = f"ranges:{tmp_path}/index.tsv", tmp_path / "cache"
    lcache.index.write(tmp_path / "index.tsv", rows)
    lcache_command("ingest", "--source", source, "--cache", cache)
    first = rows[0]  # the file stays the same, and so do the name and the length of the sample
    rows[0] = {**first, "offset": (first["offset"] + 7) % 198_000}
    lcache.index.write(tmp_path / "index.tsv", rows, overlap=True)
    again = lcache_command("ingest", "--source", source, "--cache", cache, "--json").json
    assert again["read_samples"] == 1, again
    assert lcache_command("verify", "--cache", cache, "--against", source).returncode == 0


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ([], "there are no rows"),
        ([("a", 0, 101)], "row 0: its range ends at byte 101, but shard 'a' has 100"),
        ([("a", -1, 5)], "row 0: its offset is -1, want 0 to 9223372036854775807"),
        ([("a", 0, 1 << 32)], "row 0: its length is 4294967296, want 0 to 4294967295"),
        ([("a", 0.5, 5)], "row 0: its offset is 0.5, want an integer"),
        ([("a", 0)], "row 0: it is tuple, want (shard, offset, length) or a mapping"),
        ([{"shard": "a", "offset": 0}], "row 0: it has no length"),
        ([{"shard": "a", "offset": 0, "length": 1, "sum": 3}], "row 0: key 'sum' is unknown: use shard, offset, length, part, name, label"),
        ([{"shard": "a", "offset": 0, "length": 1, "part": "x"}], "row 0: it has a part but no name, which says which rows are one sample"),
        ([("no", 0, 1)], "row 0: shard 'no' in DIR: No such file or directory"),
        ([("../a", 0, 1)], "row 0: shard '../a' is not below DIR: write the index to a folder that has all shards, and name them relative to it"),
        ([("a", 0, 1), ("b", 0, 1), ("a", 1, 1)], "row 2: shard 'a' comes again after another one: sort the rows by shard"),
        ([("a", 0, 10), ("a", 20, 5), ("a", 9, 2)], "rows 0 and 2: their ranges of shard 'a' overlap: correct them, or give overlap=True"),
        ([("a", 0, 1), {"shard": "a", "offset": 1, "length": 1, "label": 3}], "row 1: it has other keys than the first row: shard, offset, length, label, not shard, offset, length"),
        ([{"shard": "a", "offset": 0, "length": 1, "name": "x\ty"}], "row 0: its name is 'x\\ty', want a text without tabs and line ends"),
        ([{"shard": "a", "offset": 0, "length": 1, "label": 1 << 31}], "row 0: its label is 2147483648, want -2147483648 to 2147483647"),
    ],
)
def test_wrong_rows(tmp_path, rows, error):
    for name in "ab":
        (tmp_path / name).write_bytes(bytes(100))
    (tmp_path / "index.tsv").write_text("as before")
    with pytest.raises(lcache.ArgumentError) as raised:
        lcache.index.write(tmp_path / "index.tsv", rows)
    assert str(raised.value).startswith(error.replace("DIR", str(tmp_path)))
    assert (tmp_path / "index.tsv").read_text() == "as before"
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "index.tsv"]


def test_empty_ranges_never_overlap(tmp_path):
    (tmp_path / "a").write_bytes(bytes(100))
    assert lcache.index.write(tmp_path / "index.tsv", [("a", 0, 100), ("a", 50, 0), ("a", 100, 0)]) == 3
    assert (tmp_path / "index.tsv").read_text() == "shard\toffset\tlength\na\t0\t100\na\t50\t0\na\t100\t0\n"


@needs_binary
def test_rows_of_a_program(tmp_path, monkeypatch):
    """open(ranges=rows): the same rows have the same cache, other rows have another one, and lcache ls and rm know the index."""
    for key, value in environment(LCACHE_TMPFS="1", LCACHE_LINGER="0").items():
        monkeypatch.setenv(key, value)
    (tmp_path / "data").mkdir()
    rows, want = make(tmp_path / "data", rows=10)
    rows = [{**row, "shard": str(tmp_path / "data" / row["shard"])} for row in rows]
    root = tmp_path / "cache"
    for _ in range(2):
        with lcache.open(ranges=iter(rows), cache=root) as job:
            batch = job.get(range(job.samples))
            assert [(n, b, {k: bytes(v) for k, v in p.items()}) for n, b, p in zip(batch.names, batch.labels, batch.parts)] == want
            again = job.stats()["jobs"][0]["source_bytes"] == 0
            del batch
    assert again  # nothing is read a second time
    (first,) = root.iterdir()
    monkeypatch.chdir(tmp_path / "data")
    overlapping = [(os.path.relpath(rows[0]["shard"]), at, 100) for at in range(0, 1000, 50)]
    with lcache.open(ranges=overlapping, cache=root) as job:
        assert job.samples == 20 and os.path.dirname(job.names([0])[0]) != ""
        data = open(rows[0]["shard"], "rb").read()
        assert [bytes(view) for view in job.get(range(20)).samples] == [data[at : at + 100] for _, at, _ in overlapping]
    assert len(list(root.iterdir())) == 2
    with lcache.open(ranges=rows, cache=first) as job:  # the cache itself
        assert job.samples == len(want)
    with pytest.raises(lcache.ArgumentError, match="is the cache of other ranges"):
        lcache.open(ranges=overlapping, cache=first)
    listed = lcache_command("ls", root, "--json").json["caches"]
    assert sorted(c["dir"] for c in listed) == sorted(map(str, root.iterdir()))
    for cache in list(root.iterdir()):
        lcache_command("rm", cache)
    assert list(root.iterdir()) == [] and os.path.exists(rows[0]["shard"])


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ([("a", 0, 101)], "row 0: its range ends at byte 101, but shard 'a' has 100"),
        ([("b", 0, 1)], "row 0: shard 'b': No such file or directory"),
        ([("a", 0, 1), ("s3://b/c", 0, 1)], "row 1: shard 's3://b/c' is not on this machine: write an index with lcache.index next to it, and open ranges:INDEX"),
        ([(".", 0, 1)], "row 0: shard '.' is not a regular file"),
        ([("a", 0)], "row 0: it is tuple, want (shard, offset, length) or a mapping"),
        ([], "there are no rows"),
        ("a.tsv", "ranges='a.tsv': give rows of (shard, offset, length); an index file is the source ranges:INDEX"),
        (7, "ranges=7: give rows"),
    ],
)
def test_wrong_rows_of_a_program(tmp_path, monkeypatch, rows, error):
    """One error, and nothing is left."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_bytes(bytes(100))
    with pytest.raises(lcache.ArgumentError) as raised:
        lcache.open(ranges=rows, cache=tmp_path / "deep/cache")
    assert str(raised.value).startswith(error)
    assert os.listdir(tmp_path) == ["a"]
    with pytest.raises(lcache.ArgumentError, match="give a source or ranges=, not both"):
        lcache.open(tmp_path, ranges=[])
    with pytest.raises(lcache.ArgumentError, match="open: give a source, or ranges="):
        lcache.open()


@needs_binary
def test_a_failed_open_leaves_no_index(tmp_path, monkeypatch):
    for key, value in environment(LCACHE_TMPFS="1", LCACHE_LINGER="0").items():
        monkeypatch.setenv(key, value)
    (tmp_path / "a").write_bytes(bytes(1 << 20))
    with pytest.raises(lcache.Error):
        lcache.open(ranges=[(tmp_path / "a", 0, 1 << 20)], cache=tmp_path / "cache", memory="1KB")
    assert not (tmp_path / "cache").exists() or os.listdir(tmp_path / "cache") == []
