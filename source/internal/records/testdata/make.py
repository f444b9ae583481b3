"""Writes the files of this folder with pyarrow and datasets: python3 make.py. They are seeds of fuzz targets, and examples of the pages."""

import os

import pyarrow as pa
import pyarrow.parquet as pq

os.chdir(os.path.dirname(os.path.abspath(__file__)))
features = '{"info": {"features": {"image": {"_type": "Image"}, "label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}}'


def rows(name, n):
    # What examples of pages expect: a sample is its name, twenty times.
    return [f"{name}/{i}".encode() * 20 for i in range(n)]


def table(name, n):
    image = pa.array([{"bytes": b, "path": None if i % 3 else f"{i}.png"} for i, b in enumerate(rows(name, n))], pa.struct({"bytes": pa.binary(), "path": pa.string()}))
    ids = pa.array([list(range(i)) for i in range(n)], pa.list_(pa.int32()))
    columns = {"label": pa.array([i % 2 for i in range(n)], pa.int64()), "image": image, "ids": ids}
    return pa.table(columns).replace_schema_metadata({"huggingface": features})


def arrow(path, t, kind=pa.ipc.new_stream, rows=2, **options):
    with pa.OSFile(path, "wb") as f, kind(f, t.schema, options=pa.ipc.IpcWriteOptions(**options)) as w:
        for batch in t.to_batches(max_chunksize=rows):
            w.write_batch(batch)


arrow("stream.arrow", table("stream.arrow", 5))
arrow("file.arrow", table("file.arrow", 5), pa.ipc.new_file)
arrow("../../../../cmd/lcache/testdata/train.arrow", table("train-0.arrow", 5))
arrow("zstd.arrow", table("zstd.arrow", 5), compression="zstd")
for name, options in {"plain": {"use_dictionary": False}, "dictionary": {"data_page_version": "2.0"}}.items():
    compression = {"image.bytes": "NONE", "image.path": "NONE", "label": "SNAPPY", "ids.list.element": "SNAPPY"}
    pq.write_table(table(f"{name}.parquet", 9), f"{name}.parquet", compression=compression, row_group_size=4, **options)
pq.write_table(table("snappy.parquet", 5), "snappy.parquet")
pq.write_table(table("train-0.parquet", 5), "../../../../cmd/lcache/testdata/train.parquet", compression="NONE", use_dictionary=False)
lists = [[1, 2], [], None, [3]]
maps = {
    "m": pa.array([[("a", 1), ("b", 2)], [], None, [("c", 3)]], pa.map_(pa.string(), pa.int32())),
    "n": pa.array([[(1, 0.5)], [], None, [(2, 1.5), (3, 2.5)]], pa.map_(pa.int32(), pa.float32())),
    "s": pa.array([[{"x": 1, "y": 2}], [], None, [{"x": 3, "y": 4}]], pa.list_(pa.struct({"x": pa.int32(), "y": pa.int32()}))),
    "ids": pa.array(lists, pa.list_(pa.int32())),
}
pq.write_table(pa.table(maps), "maps.parquet")
for bits in (32, 64):
    labels = pa.array([0, (1 << 31) - 1, (3_000_000_000, 1 << 63)[bits == 64]], getattr(pa, f"uint{bits}")())
    pq.write_table(pa.table({"label": labels, "text": ["a", "b", "c"]}), f"uint{bits}.parquet", compression="NONE", use_dictionary=False)
numbers = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64(), pa.float32(), pa.float64()]
times = [pa.float16(), pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("us"), pa.duration("ms"), pa.duration("ns")]
lists = {f"list<{kind}>": pa.list_(kind) for kind in numbers}
others = {"binary": pa.binary(), "string": pa.string(), "large_binary": pa.large_binary(), "large_string": pa.large_string(), "fixed_size_binary[3]": pa.binary(3)}
widths = {"large_list<int16>": pa.large_list(pa.int16()), "fixed_size_list<uint16>[2]": pa.list_(pa.uint16(), 2), "binary_view": pa.binary_view()}
schema = pa.schema({**lists, **{f"list<{kind}>": pa.list_(kind) for kind in times}, **others, **widths})
arrow("types.arrow", schema.empty_table())
pq.write_table(pa.schema({**lists, **others}).empty_table(), "types.parquet")
for kind in (pa.int32(), pa.int64()):
    ids = pa.table({"ids": pa.array([[1, 2], [3]], pa.list_(kind))})
    arrow(f"list-{kind}.arrow", ids)
    pq.write_table(ids, f"list-{kind}.parquet")
tokens = {name: pa.array([None if i in missing else [i, k] for i in range(10)], pa.list_(pa.int32())) for k, (name, missing) in enumerate({"input_ids": (4, 7), "attention_mask": (2, 4)}.items())}
arrow("nulls.arrow", pa.table(tokens), rows=5)
pq.write_table(pa.table(tokens), "nulls.parquet")
views = pa.table({"v": pa.array([b"short", b"longer than twelve bytes", None] * 3, pa.binary_view()), "f": pa.array([[1.0, 2.0]] * 9, pa.list_(pa.float32(), 2)), "n": pa.array([1] * 9, pa.uint16())})
arrow("views.arrow", views, rows=4)

# One index of ranges in all forms.
index = pa.table(
    {
        "shard": ["a", "a", "a", "sub/b", "sub/b"],
        "offset": pa.array([0, 7, 90, 5, 1 << 40], pa.uint64()),
        "length": pa.array([7, 3, 0, 100, 1 << 31], pa.int64()),
        "name": ["x", "x", "y", "ü", "a name of more than twelve bytes"],
        "part": ["jpg", "txt", "jpg", "", "jpg"],
        "label": pa.array([-3, -3, 0, 7, 1 << 30], pa.int32()),
        "xxh3": pa.array([1, (1 << 64) - 1, None, None, 0x2D06800538D394C2], pa.uint64()),
    }
)
with open("index.tsv", "w", encoding="utf-8", newline="") as f:
    f.write("\t".join(index.column_names) + "\n")
    for row in index.to_pylist():
        row["xxh3"] = "" if row["xxh3"] is None else f"{row['xxh3']:016x}"
        f.write("\t".join(map(str, row.values())) + "\n")
digits = pa.array([None if v is None else f"{v:016x}" for v in index["xxh3"].to_pylist()])
pq.write_table(index, "index.parquet")
pq.write_table(index.set_column(6, "xxh3", digits), "index-pages.parquet", compression="zstd", data_page_version="2.0", row_group_size=2, use_dictionary=False)
encoded = index.set_column(0, "shard", index["shard"].dictionary_encode()).set_column(3, "name", index["name"].cast(pa.large_string()))
arrow("index-stream.arrow", encoded.set_column(6, "xxh3", digits.dictionary_encode()), emit_dictionary_deltas=True)
arrow("index-file.arrow", index.set_column(3, "name", index["name"].cast(pa.string_view())), pa.ipc.new_file, compression="lz4")
