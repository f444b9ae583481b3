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
views = pa.table({"v": pa.array([b"short", b"longer than twelve bytes", None] * 3, pa.binary_view()), "f": pa.array([[1.0, 2.0]] * 9, pa.list_(pa.float32(), 2)), "n": pa.array([1] * 9, pa.uint16())})
arrow("views.arrow", views, rows=4)
