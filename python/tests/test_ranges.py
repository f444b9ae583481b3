"""lcache.index.write, and the source ranges:INDEX read by a real server."""

import os
import random

import pytest
import xxhash
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
        ([{"shard": "a", "offset": 0, "length": 1, "sum": 3}], "row 0: key 'sum' is unknown: use shard, offset, length, part, name, label, xxh3"),
        ([{"shard": "a", "offset": 0, "length": 1, "part": "x"}], "row 0: it has a part but no name, which says which rows are one sample"),
        ([("no", 0, 1)], "row 0: shard 'no' in DIR: No such file or directory"),
        ([("../a", 0, 1)], "row 0: shard '../a' is not below DIR: write the index to a folder that has all shards, and name them relative to it"),
        ([("a", 0, 1), ("b", 0, 1), ("a", 1, 1)], "row 2: shard 'a' comes again after another one: sort the rows by shard"),
        ([("a", 0, 10), ("a", 20, 5), ("a", 9, 2)], "rows 0 and 2: their ranges of shard 'a' overlap: correct them, or give overlap=True"),
        ([("a", 0, 1), {"shard": "a", "offset": 1, "length": 1, "label": 3}], "row 1: it has other keys than the first row: shard, offset, length, label, not shard, offset, length"),
        ([{"shard": "a", "offset": 0, "length": 1, "name": "x\ty"}], "row 0: its name is 'x\\ty', want a text without tabs and line ends"),
        ([{"shard": "a", "offset": 0, "length": 1, "label": 1 << 31}], "row 0: its label is 2147483648, want -2147483648 to 2147483647"),
        ([{"shard": "a", "offset": 0, "length": 1, "xxh3": 1 << 64}], "row 0: its xxh3 is 18446744073709551616, want 0 to 18446744073709551615"),
        ([{"shard": "a", "offset": 0, "length": 1, "xxh3": "12"}], "row 0: its xxh3 is '12', want an integer or 16 hexadecimal digits"),
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


def writers():
    """Programs that write rows as an index of their own format, with default settings."""
    pa, pandas, datasets = pytest.importorskip("pyarrow"), pytest.importorskip("pandas"), pytest.importorskip("datasets")
    import pyarrow.feather
    import pyarrow.parquet

    def stream(table, path):
        with pa.OSFile(str(path), "wb") as f, pa.ipc.new_stream(f, table.schema) as w:
            for batch in table.to_batches(max_chunksize=7):
                w.write_batch(batch)

    def shuffled(rows, path):  # pandas then writes the old numbers of rows as a column
        frame = pandas.DataFrame(rows, index=[7 * i % 1009 for i in range(len(rows))])
        frame.to_parquet(path)
        assert "__index_level_0__" in pa.parquet.read_schema(path).names

    def plain(rows):
        return pa.table({c: pa.array([row[c] for row in rows], pa.uint64() if c == "xxh3" else None) for c in rows[0]})

    def small(rows):
        kinds = {"shard": pa.dictionary(pa.int8(), pa.string()), "offset": pa.uint32(), "length": pa.int16(), "name": pa.large_string(), "label": pa.uint8()}
        table = plain(rows)
        return pa.table({c: table[c].cast(kinds[c]) if c in kinds else table[c] for c in table.column_names})

    def saved(rows, path):
        datasets.Dataset.from_list(rows).save_to_disk(f"{path}-saved")
        (file,) = (f for f in os.listdir(f"{path}-saved") if f.endswith(".arrow"))
        os.rename(f"{path}-saved/{file}", path)

    return {
        "pyarrow": lambda rows, path: pa.parquet.write_table(plain(rows), path),
        "many pages": lambda rows, path: pa.parquet.write_table(plain(rows), path, row_group_size=11, data_page_size=64, compression="zstd"),
        "delta": lambda rows, path: pa.parquet.write_table(small(rows), path, use_dictionary=False, data_page_version="2.0", column_encoding=DELTA),
        "pandas": lambda rows, path: pandas.DataFrame(rows).to_parquet(path),
        "pandas, sorted": shuffled,
        "pandas, categories": lambda rows, path: pandas.DataFrame(rows).astype({"shard": "category", "part": "category"}).to_feather(path),
        "datasets": lambda rows, path: datasets.Dataset.from_list(rows).to_parquet(path),
        "datasets, saved": saved,
        "feather": lambda rows, path: pa.feather.write_feather(plain(rows), path),
        "arrow, small types": lambda rows, path: pa.feather.write_feather(small(rows), path, compression="zstd"),
        "arrow stream": lambda rows, path: stream(small(rows), path),
    }


DELTA = {"offset": "DELTA_BINARY_PACKED", "length": "BYTE_STREAM_SPLIT", "name": "DELTA_BYTE_ARRAY", "part": "DELTA_LENGTH_BYTE_ARRAY"}


@needs_binary
def test_other_programs_write_the_index(tmp_path):
    """An index that another program wrote as Parquet or Arrow lists the same samples as the text: the manifests are the same."""
    rows, _ = make(tmp_path, rows=15)
    data = {row["shard"]: (tmp_path / row["shard"]).read_bytes() for row in rows}
    for i, row in enumerate(rows):
        bytes_of = data[row["shard"]][row["offset"] : row["offset"] + row["length"]]
        row["xxh3"] = xxhash.xxh3_64_intdigest(bytes_of) if i % 4 else 0  # 0: not known
    programs = writers()
    lcache.index.write(tmp_path / "index.tsv", rows)

    def listed(name):
        cache = tmp_path / f"cache-{name}"
        lcache_command("ingest", "--source", f"ranges:{tmp_path}/{name}", "--cache", cache, "--no-prefill")
        return (cache / "manifest").read_bytes()

    want = listed("index.tsv")
    for program, write in programs.items():
        texts = [{**row, "xxh3": f"{row['xxh3']:016x}"} for row in rows] if "datasets" in program else rows
        write(texts, tmp_path / "index")
        assert listed("index") == want, program
        lcache_command("rm", tmp_path / "cache-index")


@needs_binary
@pytest.mark.parametrize(
    ("column", "values", "error"),
    [
        ("offset", [0, 1, -5], "row 2: its offset is -5, want an integer from 0 to 9223372036854775807"),
        ("offset", [0, 1, None], "row 2: its offset is null"),
        ("offset", [0, (1 << 64) - 1, 1], "row 1: its offset is 18446744073709551615, want an integer from 0 to 9223372036854775807"),
        ("offset", [0.0, 1.0, 2.5], "column offset has values of another type, want integers"),
        ("offset", ["0", "1", "2"], "column offset has text, want integers"),
        ("length", [1, 1 << 32, 1], "row 1: its length is 4294967296, want an integer from 0 to 4294967295"),
        ("length", [1, 1, 101], "the index has a range that ends at byte 103, but the file has 100"),
        ("shard", [0, 1, 2], "column shard has integers, want text"),
        ("shard", ["a", None, "a"], "row 1: its shard is null"),
        ("shard", ["a", "", "a"], "row 1: its shard is empty"),
        ("shard", ["a", "b", "a"], 'row 2: shard "a" comes again after another one: sort the lines by shard'),
        ("shard", ["a", "/a", "/a"], 'row 1: shard "/a" is not relative'),
        ("shard", [["a"], ["a"], ["a"]], "column shard has"),
        ("label", [1, 2, 1 << 31], "row 2: its label is 2147483648, want an integer from -2147483648 to 2147483647"),
        ("name", ["x", "y", None], "row 2: its name is null"),
        ("name", ["x", "y", "y"], 'row 2: sample "y" comes twice: give each sample another name'),
        ("xxh3", ["", "y", ""], 'row 1: its xxh3 is "y", want 16 hexadecimal digits'),
        ("xxh3", [1.5, 2.5, 3.5], "column xxh3 has values of another type, want uint64, or text of 16 hexadecimal digits"),
        ("sum", [1, 2, 3], 'column "sum" is unknown: an index has the columns shard, offset, length, part, label, name, xxh3'),
    ],
)
def test_wrong_values(tmp_path, column, values, error):
    """One error, for Parquet and for Arrow."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.feather
    import pyarrow.parquet

    for name in "ab":
        (tmp_path / name).write_bytes(bytes(100))
    kind = pa.uint64() if (1 << 64) - 1 in values else None  # pyarrow takes integers for int64
    table = pa.table({"shard": ["a"] * 3, "offset": [0, 1, 2], "length": [1] * 3} | {column: pa.array(values, kind)})
    pa.parquet.write_table(table, tmp_path / "i.parquet")
    pa.feather.write_feather(table, tmp_path / "i.arrow")
    for index in ("i.parquet", "i.arrow"):
        done = lcache_command("ingest", "--source", f"ranges:{tmp_path}/{index}", "--cache", tmp_path / "cache", check=False)
        assert done.returncode != 0 and error in done.stderr and done.stderr.count("\n") == 1, done.stderr
        assert f'ranges:{tmp_path}/{index}"' in done.stderr
    assert not (tmp_path / "cache/manifest").exists()


@needs_binary
def test_a_wrong_checksum(tmp_path, monkeypatch):
    """A sample whose bytes do not have the checksum of the index is an error that names it, and is never cached. All others are served."""
    for key, value in environment(LCACHE_TMPFS="1", LCACHE_LINGER="0").items():
        monkeypatch.setenv(key, value)
    rows, want = make(tmp_path, shards=2, rows=10)
    for row in rows:
        data = (tmp_path / row["shard"]).read_bytes()
        row["xxh3"] = xxhash.xxh3_64_intdigest(data[row["offset"] : row["offset"] + row["length"]])
    wrong = rows[9]
    assert wrong["name"] == "0-4" and wrong["part"] == "txt"
    right, wrong["xxh3"] = wrong["xxh3"], "0123456789abcdef"
    source, cache = f"ranges:{tmp_path}/index.tsv", tmp_path / "cache"
    lcache.index.write(tmp_path / "index.tsv", rows)
    named = f'sample "0-4": shard "{wrong["shard"]}": byte {wrong["offset"]}: the xxh3 of {wrong["length"]} bytes is {right:016x}, but the index says 0123456789abcdef'
    done = lcache_command("ingest", "--source", source, "--cache", cache, check=False)
    assert done.returncode != 0 and named in done.stderr, done.stderr
    with lcache.open(source, cache=cache) as job:
        others = [i for i in range(len(want)) if i != 4]
        assert [{k: bytes(v) for k, v in p.items()} for p in job.get(others).parts] == [want[i][2] for i in others]
        for _ in range(2):
            with pytest.raises(lcache.Error) as raised:
                job.get([4])
            assert named in str(raised.value)
    wrong["xxh3"] = right  # only this sample is read, and with the checksum it is right
    lcache.index.write(tmp_path / "index.tsv", rows)
    assert lcache_command("ingest", "--source", source, "--cache", cache, "--json").json["read_samples"] == 1
    with lcache.open(source, cache=cache) as job:
        assert {k: bytes(v) for k, v in job.get([4]).parts[0].items()} == want[4][2]
