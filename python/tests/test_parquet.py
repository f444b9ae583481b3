"""parquet:PATTERN compared with pyarrow and datasets, sample by sample."""

import random

import pytest
from realserver import lcache_command, needs_binary
from test_arrow import clean, samples, with_first  # noqa: F401

import lcache

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

pytestmark = needs_binary


def table(n, seed=1, labels=None):
    """A table with each kind of column that can be a part, with nulls in all of them."""
    draw = random.Random(seed)

    def maybe(value):
        return None if draw.random() < 0.2 else value

    return pa.table(
        {
            "number": pa.array(range(n)),
            "text": pa.array([maybe(draw.choice(["", "a", "bc", "é" * 9])) for _ in range(n)], pa.string()),
            "image": pa.array(
                [maybe({"bytes": maybe(draw.randbytes(draw.randrange(5000))), "path": maybe(f"p{i % 5}")}) for i in range(n)],
                pa.struct({"bytes": pa.binary(), "path": pa.string()}),
            ),
            "blob": pa.array([draw.randbytes(draw.randrange(200)) for _ in range(n)], pa.large_binary()),
            "fixed": pa.array([maybe(draw.randbytes(9)) for _ in range(n)], pa.binary(9)),
            "words": pa.array([["a", "b"]] * n),
            "label": pa.array(labels if labels is not None else [draw.randrange(-5, 5) for _ in range(n)]),
        }
    )


def expected(rows):
    """The label and the parts of each row."""
    found = []
    for row in rows.to_pylist():
        parts = {}
        if (image := row["image"]) is not None:
            parts.update({"image": image["bytes"]} if image["bytes"] is not None else {})
            parts.update({"image.path": image["path"].encode()} if image["path"] is not None else {})
        for name in ("text", "blob", "fixed"):
            if row[name] is not None:
                parts[name] = row[name].encode() if isinstance(row[name], str) else row[name]
        found.append((row["label"], with_first(parts, "image")))
    return found


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_every_page(tmp_path, version, dictionary):
    """Plain values and dictionaries, in pages of both versions, with labels in every codec; pages and row groups are small, so there are many."""
    want = []
    for seed, labels in enumerate(["GZIP", "LZ4", "NONE", "SNAPPY", "ZSTD"]):
        rows = table(200, seed)
        codecs = {"text": "NONE", "image.bytes": "NONE", "image.path": "NONE", "blob": "NONE", "fixed": "NONE", "label": labels, "number": "SNAPPY"}
        codecs["words.list.element"] = "SNAPPY"
        pq.write_table(
            rows, tmp_path / f"{labels}.parquet", compression=codecs, use_dictionary=dictionary, data_page_version=version, data_page_size=2000, row_group_size=70
        )
        want += [(f"{labels}.parquet/{i}", *row) for i, row in enumerate(expected(rows))]
    found, _ = samples(f"parquet:{tmp_path}/*.parquet", tmp_path / "cache")
    assert found == want


def test_every_label(tmp_path):
    """Labels of every width, in the encodings of pyarrow's writers."""
    draw = random.Random(3)
    want = []
    for kind, (least, most) in {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**31), 2**31 - 1), "int8": (-128, 127), "uint8": (0, 255)}.items():
        for encoding in ("DELTA_BINARY_PACKED", "PLAIN"):
            labels = [draw.choice([least, most, 0, 1, draw.randrange(least, most)]) for _ in range(700)]
            rows = table(700, labels=labels).set_column(6, "label", pa.array(labels, getattr(pa, kind)()))
            path = tmp_path / f"{kind}-{encoding}.parquet"
            pq.write_table(
                rows, path, compression={"blob": "NONE", "label": "ZSTD"}, use_dictionary=False, column_encoding={"label": encoding}, data_page_size=900
            )
            want += zip(labels, rows["blob"].to_pylist())
    found, _ = samples(f"parquet:{tmp_path}/*.parquet", tmp_path / "cache", columns="blob")
    assert [(label, parts["blob"]) for _, label, parts in found] == want


def test_dataset(tmp_path):
    """What datasets writes: images are ranges, in several shards; order, labels and classes are the dataset's."""
    datasets = pytest.importorskip("datasets")
    draw = random.Random(4)
    rows = {
        "image": [{"bytes": draw.randbytes(draw.randrange(1, 30_000)), "path": None if i % 2 else f"{i}.png"} for i in range(200)],
        "label": [draw.randrange(3) for _ in range(200)],
    }
    features = datasets.Features({"image": datasets.Image(decode=False), "label": datasets.ClassLabel(names=["a", "b", "c"])})
    ds = datasets.Dataset.from_dict(rows, features=features)
    for k in range(3):
        ds.shard(3, k).to_parquet(tmp_path / f"train-{k:05d}-of-00003.parquet")
    found, classes = samples(f"parquet:{tmp_path}/train-*.parquet", tmp_path / "cache")
    assert classes == ["a", "b", "c"] and len(found) == len(ds)
    for row, (_, label, parts) in zip(ds, found):
        assert label == row["label"] and parts["image"] == row["image"]["bytes"]
    source = f"parquet:{tmp_path}/train-*.parquet"
    assert lcache_command("ingest", "--source", source, "--cache", tmp_path / "own").returncode == 0
    assert lcache_command("verify", "--cache", tmp_path / "own", "--against", source).returncode == 0


def test_files_without_rows(tmp_path):
    """As Spark and pyarrow write them, among others: with a row group of no rows, or without a row group."""
    rows = pa.table({"image": [b"a", b"bc", None]})
    pq.write_table(rows, tmp_path / "a.parquet", compression="NONE")
    pq.write_table(rows[:0], tmp_path / "b.parquet", compression="NONE")
    pq.ParquetWriter(tmp_path / "c.parquet", rows.schema, compression="NONE").close()
    with pq.ParquetWriter(tmp_path / "d.parquet", rows.schema, compression="NONE") as f:
        f.write_table(rows[:0])
        f.write_table(rows)
    for stream in (False, True):
        with lcache.open(f"parquet:{tmp_path}/*.parquet", cache=tmp_path / f"cache{stream}", stream=stream) as job:
            batch = job.get(range(6))
            assert job.samples == 6 and [bytes(view) for view in batch.samples] == [b"a", b"bc", b""] * 2
            assert batch.names == [f"{name}.parquet/{i}" for name in "ad" for i in range(3)]
            batch.release()


def test_refused(tmp_path):
    pq.write_table(table(50), tmp_path / "a.parquet")
    with pytest.raises(lcache.Error, match=r'no column of it can be served as it is \(its column "image" can\'t: it is compressed by SNAPPY: give stream=True to decode it once'):
        lcache.open(f"parquet:{tmp_path}/a.parquet", cache=tmp_path / "cache")
    with pytest.raises(lcache.Error, match=r'its column "words" can\'t be served: it has lists of something else than numbers'):
        lcache.open(f"parquet:{tmp_path}/a.parquet", cache=tmp_path / "cache", columns=["words"])
    pq.write_table(table(50, labels=[None] * 50).set_column(6, "label", pa.array([None] * 50, pa.int64())), tmp_path / "b.parquet", compression="NONE")
    with pytest.raises(lcache.Error, match=r'column "label": row 0 has no label: give a file of labels'):
        lcache.open(f"parquet:{tmp_path}/b.parquet", cache=tmp_path / "cache")
    found, _ = samples(f"parquet:{tmp_path}/b.parquet", tmp_path / "cache", flat=True)
    assert len(found) == 50
