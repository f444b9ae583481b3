"""arrow:PATTERN compared with pyarrow and datasets, sample by sample."""

import json
import os
import random
import struct

import pytest
from realserver import environment, lcache_command, needs_binary

import lcache

pyarrow = pytest.importorskip("pyarrow")
pa = pyarrow

pytestmark = needs_binary


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for key, value in environment(LCACHE_TMPFS="1", LCACHE_LINGER="0").items():
        monkeypatch.setenv(key, value)


def samples(source, cache, **more):
    """All samples that lcache serves: name, label and parts of each."""
    with lcache.open(source, cache=cache, epochs=1, batch_size=8, recipe="torch.distributed_sampler", **more) as job:
        found, first = [], []
        for at in range(0, job.samples, 50):
            batch = job.get(range(at, min(at + 50, job.samples)))
            first += map(bytes, batch.samples)
            found += [
                (name, label, {k: bytes(v) for k, v in parts.items()}) for name, label, parts in zip(batch.names, batch.labels, batch.parts)
            ]
        assert first == [next(iter(parts.values()), b"") for _, _, parts in found]
        return found, list(job.classes)


def with_first(parts, first):
    """The parts of a row that may lack the first one: an empty part without a name is in its place."""
    return parts if not parts or first in parts else {"": b"", **parts}


def write(path, table, rows=None, stream=True, **options):
    kind = pa.ipc.new_stream if stream else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as f, kind(f, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as w:
        for batch in table.to_batches(max_chunksize=rows):
            w.write_batch(batch)


def every_type(n, seed=1):
    """A table with a column of each type that can be a part, with nulls, and what each row's parts must be."""
    draw = random.Random(seed)

    def maybe(value):
        return None if draw.random() < 0.2 else value

    texts = [maybe("é" * draw.randrange(20)) for _ in range(n)]
    blobs = [maybe(draw.randbytes(draw.randrange(3000))) for _ in range(n)]
    fixed = [maybe(draw.randbytes(7)) for _ in range(n)]
    ints = [maybe([draw.randrange(-(2**31), 2**31) for _ in range(draw.randrange(9))]) for _ in range(n)]
    floats = [maybe([draw.random() for _ in range(3)]) for _ in range(n)]
    shorts = [maybe([draw.randrange(65536) for _ in range(draw.randrange(9))]) for _ in range(n)]
    media = [maybe({"bytes": maybe(draw.randbytes(draw.randrange(500))), "path": maybe(f"p{i}")}) for i in range(n)]
    columns = {
        "image": pa.array(media, pa.struct({"bytes": pa.binary(), "path": pa.string()})),
        "text": pa.array(texts, pa.string()),
        "large_text": pa.array(texts, pa.large_string()),
        "blob": pa.array(blobs, pa.binary()),
        "large_blob": pa.array(blobs, pa.large_binary()),
        "fixed": pa.array(fixed, pa.binary(7)),
        "input_ids": pa.array(ints, pa.list_(pa.int32())),
        "large_ids": pa.array(shorts, pa.large_list(pa.uint16())),
        "vector": pa.array(floats, pa.list_(pa.float32(), 3)),
        "view": pa.array(blobs, pa.binary_view()),
        "text_view": pa.array(texts, pa.string_view()),
        "number": pa.array(range(n), pa.int64()),
        "flag": pa.array([i % 2 == 0 for i in range(n)]),
        "label": pa.array([draw.randrange(-3, 4) for _ in range(n)], pa.int8()),
        "nested": pa.array([[[1]]] * n),
        "nothing": pa.nulls(n),
        "when": pa.array([0] * n, pa.timestamp("us")),
        "kind": pa.array(["a"] * n).dictionary_encode(),
        "after": pa.array(texts, pa.string()),
    }
    table = pa.table(columns)
    pack = {"input_ids": "i", "large_ids": "H", "vector": "f"}
    want = []
    for row in table.to_pylist():
        parts = {}
        for name in ("image", "text", "large_text", "blob", "large_blob", "fixed", "input_ids", "large_ids", "vector", "view", "text_view", "after"):
            value = row[name]
            if name == "image":
                for key, part in (("bytes", "image"), ("path", "image.path")):
                    if value is not None and value[key] is not None:
                        parts[part] = value[key] if key == "bytes" else value[key].encode()
            elif value is not None:
                parts[name] = value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else struct.pack(f"<{len(value)}{pack[name]}", *value)
        want.append((row["label"], with_first(parts, "image")))
    return table, want


@pytest.mark.parametrize(("stream", "rows"), [(True, None), (True, 13), (False, 7), (False, None)])
def test_every_type(tmp_path, stream, rows):
    expected = []
    for k in range(2):
        table, want = every_type(61, seed=k)
        if k == 1:
            table, want = table.slice(5, 40), want[5:45]
        write(tmp_path / f"d-{k}.arrow", table, rows, stream)
        expected += [(f"d-{k}.arrow/{i}", *w) for i, w in enumerate(want)]
    found, classes = samples(f"arrow:{tmp_path}/d-{{0,1}}.arrow", tmp_path / "cache")
    assert [(n, label, parts) for n, label, parts in found] == expected
    assert classes == []
    assert [list(p) for _, _, p in found[:9]] == [sorted(p, key=list(found_order(found)).index) for _, _, p in found[:9]]


def found_order(found):
    """The order of all parts, from the sample that has most."""
    return {"": b"", **max((p for _, _, p in found if "" not in p), key=len)}


def test_empty_rows(tmp_path):
    """A row without a value is an empty sample; so is one with an empty value."""
    table = pa.table({"text": pa.array([None, "a", "", None, None, "bc"])})
    write(tmp_path / "a.arrow", table, 2)
    found, _ = samples(f"arrow:{tmp_path}/a.arrow", tmp_path / "cache")
    assert [parts for _, _, parts in found] == [{"": b""}, {"text": b"a"}, {"text": b""}, {"": b""}, {"": b""}, {"text": b"bc"}]
    source = f"arrow:{tmp_path}/a.arrow"
    lcache_command("ingest", "--source", source, "--cache", tmp_path / "own")
    assert lcache_command("verify", "--cache", tmp_path / "own", "--against", source).returncode == 0


def test_a_first_part_that_is_missing(tmp_path):
    """No other column takes the place of null tokens. A chosen part must be in every row."""
    rows = {"input_ids": [None if i == 7 else [i, i] for i in range(10)], "attention_mask": [[1, 1]] * 10}
    write(tmp_path / "a.arrow", pa.table({name: pa.array(value, pa.list_(pa.int32())) for name, value in rows.items()}), 4)
    source = f"arrow:{tmp_path}/a.arrow"
    found, _ = samples(source, tmp_path / "cache")
    assert found[7][2] == {"": b"", "attention_mask": struct.pack("<2i", 1, 1)} and found[6][2]["input_ids"] == struct.pack("<2i", 6, 6)
    with lcache.open(source, cache=tmp_path / "cache") as job, pytest.raises(lcache.Error, match="sample 7.*0 bytes"):
        job.get(range(10)).array("<i4", 2)
    with pytest.raises(lcache.Error, match="a.arrow/7.*it has no part .*input_ids.*choose another part=, or give all samples one"):
        samples(source, tmp_path / "chosen", part="input_ids")
    found, _ = samples(source, tmp_path / "chosen", part="attention_mask")
    assert [list(parts) for _, _, parts in found[6:8]] == [["attention_mask", "input_ids"], ["attention_mask"]]


def test_saved_dataset(tmp_path):
    """What save_to_disk writes: shards in their order, classes, images as bytes, null cells, and rows as the dataset has them."""
    datasets = pytest.importorskip("datasets")
    draw = random.Random(4)
    rows = {
        "image": [None if i % 11 == 5 else {"bytes": draw.randbytes(draw.randrange(1, 4000)), "path": None if i % 2 else f"{i}.png"} for i in range(300)],
        "caption": [f"caption {i}" for i in range(300)],
        "label": [draw.randrange(3) for _ in range(300)],
    }
    features = datasets.Features({"image": datasets.Image(decode=False), "caption": datasets.Value("string"), "label": datasets.ClassLabel(names=["a", "b", "c"])})
    ds = datasets.Dataset.from_dict(rows, features=features).shuffle(seed=3)
    ds.save_to_disk(tmp_path / "saved", num_shards=3)
    ds = datasets.load_from_disk(tmp_path / "saved")
    found, classes = samples(f"arrow:{tmp_path}/saved", tmp_path / "cache")
    assert classes == ["a", "b", "c"] and len(found) == len(ds)
    for row, (_, label, parts) in zip(ds, found):
        want = {} if row["image"] is None else {"image": row["image"]["bytes"]}
        if row["image"] is not None and row["image"]["path"] is not None:
            want["image.path"] = row["image"]["path"].encode()
        assert (label, parts) == (row["label"], with_first({**want, "caption": row["caption"].encode()}, "image"))
    splits = datasets.DatasetDict({"train": ds.select(range(10)), "test": ds.select(range(5))})
    splits.save_to_disk(tmp_path / "dict")
    with pytest.raises(lcache.Error, match=r"has the splits train, test: choose one, such as .*dict/train"):
        lcache.open(f"arrow:{tmp_path}/dict", cache=tmp_path / "cache")
    found, _ = samples(f"arrow:{tmp_path}/dict/train", tmp_path / "cache", columns=["caption"])
    assert [parts for _, _, parts in found] == [{"caption": ds[i]["caption"].encode()} for i in range(10)]


def test_cached_dataset(tmp_path):
    """The cache of load_dataset, and tokens as lists of numbers."""
    datasets = pytest.importorskip("datasets")
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps({"input_ids": list(range(i % 7)), "text": f"t{i}"}) + "\n" for i in range(500)))
    ds = datasets.load_dataset("json", data_files=str(source), split="train", cache_dir=str(tmp_path / "hf"))
    folder = os.path.dirname(ds.cache_files[0]["filename"])
    found, classes = samples(f"arrow:{folder}", tmp_path / "cache", part="input_ids")
    assert classes == []
    for row, (_, label, parts) in zip(ds, found):
        assert label == 0 and parts == {"input_ids": struct.pack(f"<{len(row['input_ids'])}q", *row["input_ids"]), "text": row["text"].encode()}
    with lcache.open(f"arrow:{folder}", cache=tmp_path / "cache", columns="text", epochs=1, batch_size=8, recipe="torch.distributed_sampler") as job:
        assert bytes(job.get([7]).samples[0]) == b"t7"


def test_settings_are_kept(tmp_path):
    """The flags are part of the cache's identity: its folder's name, job.json, and what a server is asked for."""
    write(tmp_path / "a.arrow", pa.table({"a": [b"1", b"2"], "b": [b"3", b"4"], "n": [5, 6]}))
    source = f"arrow:{tmp_path}/a.arrow"
    one, _ = samples(source, tmp_path / "root", columns=["b"], label_column="n")
    two, _ = samples(source, tmp_path / "root", columns=["a"])
    assert [(label, parts) for _, label, parts in one] == [(5, {"b": b"3"}), (6, {"b": b"4"})]
    assert [(label, parts) for _, label, parts in two] == [(0, {"a": b"1"}), (0, {"a": b"2"})]
    caches = [json.loads((d / "job.json").read_text()) for d in sorted((tmp_path / "root").iterdir())]
    assert sorted(str(c.get("record_flags")) for c in caches) == ["{'columns': 'a'}", "{'columns': 'b', 'label-column': 'n'}"]
    done = lcache_command("run", "--source", source, "--cache", (tmp_path / "root").glob("a*").__next__(), "--columns", "n,b", "--", "true", check=False)
    assert done.returncode == 125 and "columns" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (["--columns", "c"], 'it has no column "c": it has a, b'),
        (["--label-column", "a"], 'it has no column "a" of integers for labels: choose --label-column of n'),
        (["--columns", "a,,b"], "--columns: an empty name in"),
        (["--columns", ""], "--columns is empty: give a value, or leave it out"),
    ],
)
def test_wrong_flags(tmp_path, flags, error):
    write(tmp_path / "a.arrow", pa.table({"a": [b"1", b"2"], "b": [b"3", b"4"], "n": [5, 6]}))
    done = lcache_command("ingest", "--source", f"arrow:{tmp_path}/a.arrow", "--cache", tmp_path / "cache", *flags, check=False)
    assert done.returncode != 0 and error in done.stderr, done.stderr
    done = lcache_command("ingest", "--source", f"ranges:{tmp_path}/i.tsv", "--cache", tmp_path / "cache", "--columns", "a", check=False)
    assert done.returncode != 0 and "--columns is not for a source ranges:" in done.stderr, done.stderr
