"""Record files whose samples must be decoded (--stream), compared with pyarrow, datasets and zipfile, sample by sample."""

import os
import random
import zipfile

import pytest
from realserver import lcache_command, needs_binary
from test_arrow import clean, every_type, samples, with_first  # noqa: F401
from test_arrow import write as write_arrow
from test_parquet import expected, table

import lcache

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

pytestmark = needs_binary

LISTS = {"int8": (-128, 127), "uint16": (0, 65535), "int32": (-(2**31), 2**31 - 1), "uint32": (0, 2**32 - 1), "int64": (-(2**63), 2**63 - 1), "uint64": (0, 2**64 - 1)}
WIDTHS = {"int8": 1, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "float": 4, "double": 8}


def lists(n, seed):
    """Columns of lists of each kind of number, also of fixed size, with nulls and empty lists."""
    draw = random.Random(seed)

    def maybe(value):
        return None if draw.random() < 0.15 else value

    columns = {}
    for name, (least, most) in LISTS.items():
        rows = [maybe([draw.randint(least, most) for _ in range(draw.choice([0, 1, 3, 40]))]) for _ in range(n)]
        columns[f"l_{name}"] = pa.array(rows, pa.list_(getattr(pa, name)()))
    for name, kind in {"float": pa.float32(), "double": pa.float64()}.items():
        columns[f"l_{name}"] = pa.array([maybe([draw.randrange(100) / 4 for _ in range(draw.randrange(5))]) for _ in range(n)], pa.list_(kind))
    columns["fixed_list"] = pa.array([maybe([draw.randrange(100) for _ in range(3)]) for _ in range(n)], pa.list_(pa.int32(), 3))
    return pa.table(columns)


def list_parts(rows):
    import numpy as np

    found = [{} for _ in range(len(rows))]
    for name in rows.column_names:
        kind = rows.schema.field(name).type.value_type
        for i, value in enumerate(rows[name].to_pylist()):
            if value is not None:
                found[i][name] = np.array(value, kind.to_pandas_dtype()).tobytes()
    return [with_first(parts, rows.column_names[0]) for parts in found]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_parquet(tmp_path, version, dictionary):
    """Each codec, with small pages and row groups."""
    want, codecs = [], ["BROTLI", "GZIP", "LZ4", "NONE", "SNAPPY", "ZSTD"]
    for seed, codec in enumerate(codecs):
        rows = table(150, seed)
        pq.write_table(
            rows, tmp_path / f"{codec}.parquet", compression=codec, use_dictionary=dictionary, data_page_version=version, data_page_size=1500, row_group_size=70
        )
        want += [(f"{codec}.parquet/{i}", *row) for i, row in enumerate(expected(rows))]
    found, _ = samples(f"parquet:{tmp_path}/*.parquet", tmp_path / "cache", stream=True)
    assert found == want


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_parquet_lists(tmp_path, version):
    want = []
    for seed, (codec, dictionary) in enumerate([("SNAPPY", True), ("ZSTD", False), ("NONE", True), ("NONE", False)]):
        rows = lists(200, seed)
        pq.write_table(
            rows, tmp_path / f"{seed}.parquet", compression=codec, use_dictionary=dictionary, data_page_version=version, data_page_size=900, row_group_size=90
        )
        want += list_parts(rows)
    found, _ = samples(f"parquet:{tmp_path}/*.parquet", tmp_path / "cache", stream=True)
    assert [parts or {} for _, _, parts in found] == [row or {"": b""} for row in want]


def test_parquet_encodings(tmp_path):
    """The encodings that writers choose only if they are told to."""
    encodings = {"text": "DELTA_BYTE_ARRAY", "blob": "DELTA_LENGTH_BYTE_ARRAY", "image.bytes": "DELTA_BYTE_ARRAY", "image.path": "DELTA_LENGTH_BYTE_ARRAY", "fixed": "DELTA_BYTE_ARRAY"}
    rows = table(300, 7)
    pq.write_table(rows, tmp_path / "a.parquet", use_dictionary=False, column_encoding=encodings, data_page_size=2000)
    found, _ = samples(f"parquet:{tmp_path}/a.parquet", tmp_path / "cache", stream=True)
    assert [(label, parts) for _, label, parts in found] == expected(rows)
    encodings = {f"l_{name}.list.element": "DELTA_BINARY_PACKED" for name in LISTS}
    encodings |= {f"l_{name}.list.element": "BYTE_STREAM_SPLIT" for name in ("float", "double")}
    numbers = lists(300, 8)
    pq.write_table(numbers, tmp_path / "b.parquet", use_dictionary=False, column_encoding=encodings, data_page_size=900)
    found, _ = samples(f"parquet:{tmp_path}/b.parquet", tmp_path / "cache", stream=True)
    assert [parts for _, _, parts in found] == [row or {"": b""} for row in list_parts(numbers)]


def test_older_datasets(tmp_path):
    """What releases of datasets before 4.6 wrote: SNAPPY images with dictionaries."""
    datasets = pytest.importorskip("datasets")
    draw = random.Random(5)
    features = datasets.Features({"image": datasets.Image(decode=False), "label": datasets.ClassLabel(names=["a", "b"])})
    rows = [{"image": {"bytes": draw.randbytes(draw.randrange(100, 90_000)), "path": None}, "label": i % 2} for i in range(120)]
    ds = datasets.Dataset.from_list(rows, features=features)
    pq.write_table(ds.data.table.combine_chunks().replace_schema_metadata(ds.data.table.schema.metadata), tmp_path / "x.parquet", compression="snappy", row_group_size=50)
    with pytest.raises(lcache.Error, match="compressed by SNAPPY.*stream=True"):
        samples(f"parquet:{tmp_path}/x.parquet", tmp_path / "cache")
    found, classes = samples(f"parquet:{tmp_path}/x.parquet", tmp_path / "cache", stream=True)
    assert [(label, parts["image"]) for _, label, parts in found] == [(row["label"], row["image"]["bytes"]) for row in rows]
    assert classes == ["a", "b"]


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("stream", [True, False])
def test_arrow(tmp_path, codec, stream):
    rows, want = every_type(300)
    path = tmp_path / "x.arrow"
    write_arrow(path, rows, rows=70, stream=stream, compression=codec)
    plain = tmp_path / "y.arrow"
    write_arrow(plain, rows, rows=70, stream=stream)
    with pytest.raises(lcache.Error, match="compressed by .*stream=True"):
        samples(f"arrow:{path}", tmp_path / "cache")
    found, _ = samples(f"arrow:{path}", tmp_path / "cache", stream=True)
    beside, _ = samples(f"arrow:{plain}", tmp_path / "cache")
    decoded, _ = samples(f"arrow:{plain}", tmp_path / "decoded", stream=True)
    rest = [row[1:] for row in beside]
    assert len(found) == 300 and [row[1:] for row in found] == rest == [row[1:] for row in decoded]


def test_zip(tmp_path):
    draw = random.Random(2)
    want = []
    for name, method in {"a": zipfile.ZIP_DEFLATED, "b": zipfile.ZIP_STORED}.items():
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w", method) as archive:
            for i in range(60):
                parts = {"txt": b"word " * draw.randrange(300), "bin": draw.randbytes(draw.randrange(4000)), "cls": str(i % 7).encode()}
                for ext, data in parts.items():
                    archive.writestr(f"d/{i}.{ext}", data)
                archive.writestr(f"README{i}", b"no sample")
                want.append((f"{name}.zip/d/{i}", i % 7, parts))
    with pytest.raises(lcache.Error, match="compressed .deflate.*stream=True"):
        samples(f"zip:{tmp_path}/*.zip", tmp_path / "cache", part="bin")
    found, _ = samples(f"zip:{tmp_path}/*.zip", tmp_path / "cache", part="bin", stream=True)
    assert [(name, label, dict(sorted(parts.items()))) for name, label, parts in found] == [(n, c, dict(sorted(p.items()))) for n, c, p in want]


def test_a_budget_that_is_too_small(tmp_path):
    pq.write_table(pa.table({"x": [random.Random(i).randbytes(100_000) for i in range(400)]}), tmp_path / "x.parquet")
    done = lcache_command("ingest", "--source", f"parquet:{tmp_path}/x.parquet", "--cache", tmp_path / "c", "--stream", "--budget", "20MiB", check=False)
    assert done.returncode != 0 and "can only be read front to back" in done.stderr and "--budget" in done.stderr
    assert not os.path.exists(tmp_path / "c")


def test_lost_samples_are_decoded_again(tmp_path):
    """A second ingest does not read, and a cache whose log is gone is filled again."""
    rows = table(200, 3)
    pq.write_table(rows, tmp_path / "x.parquet", compression="ZSTD", row_group_size=60)
    source = f"parquet:{tmp_path}/x.parquet"
    lcache_command("ingest", "--source", source, "--cache", tmp_path / "c", "--stream")
    again = lcache_command("ingest", "--source", source, "--cache", tmp_path / "c", "--json")
    assert again.json["read_samples"] == 0, again.json
    checked = lcache_command("verify", "--cache", tmp_path / "c", "--against", source, check=False)
    assert checked.returncode == 0, checked.stderr + checked.stdout


def test_damage(tmp_path):
    """A page that does not have its checksum, and bytes that can't be decompressed."""
    pq.write_table(pa.table({"x": [random.Random(i).randbytes(999) for i in range(200)]}), tmp_path / "good.parquet", compression="ZSTD", use_dictionary=False, write_page_checksum=True)
    with zipfile.ZipFile(tmp_path / "good.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("0.txt", random.Random(1).randbytes(9999))
    for name, kind, says in ("parquet", "parquet", "column .x.*checksum"), ("zip", "zip", "member .0.txt.*can't be unpacked"):
        data = bytearray((tmp_path / f"good.{name}").read_bytes())
        data[len(data) // 2] ^= 1
        (tmp_path / f"bad.{name}").write_bytes(data)
        with pytest.raises(lcache.Error, match=f"bad.{name}.*{says}") as error:
            samples(f"{kind}:{tmp_path}/bad.{name}", tmp_path / "cache", stream=True)
        assert "\n" not in str(error.value)
