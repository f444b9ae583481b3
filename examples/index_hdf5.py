"""Write an index of the rows of HDF5 files, for the source ranges:INDEX of lcache. Needs h5py and lcache.

    python examples/index_hdf5.py index.tsv images [labels] train-0.h5 train-1.h5
    lcache run --source ranges:index.tsv -- python train.py

Each row of the dataset `images` becomes one sample: the bytes of its values, as in the file. The dataset `labels`, if given, has an integer for each row.
The index must be in a folder that has all files. A row is a range of bytes if the dataset is contiguous, or if its chunks have no filter and hold whole
rows. Otherwise write it again, for example with h5repack -l images:CONTI.

In training, decode=lambda data, sample: numpy.frombuffer(data, "<f4").reshape(3, 32, 32) gives the row as an array, with the dataset's dtype and shape.
"""

import os
import sys

import h5py
import numpy

import lcache.index


def row_ranges(dataset):
    """Yields the offset and the length of each row in the file."""
    size = dataset.dtype.itemsize * int(numpy.prod(dataset.shape[1:], dtype=numpy.int64))
    properties = dataset.id.get_create_plist()
    if dataset.is_virtual or dataset.external or dataset.dtype.hasobject or size == 0:
        raise SystemExit(f"{dataset.file.filename}: {dataset.name} is virtual, external, or has values without a fixed size: write it again as a plain dataset")
    if properties.get_nfilters():
        raise SystemExit(f"{dataset.file.filename}: {dataset.name} is compressed or has another filter: write it again without (h5repack -f {dataset.name}:NONE)")
    if dataset.chunks is None:
        begin = dataset.id.get_offset()
        if begin is None:
            raise SystemExit(f"{dataset.file.filename}: {dataset.name} is compact or was never written: write it again as a contiguous dataset")
        for i in range(len(dataset)):
            yield begin + i * size, size
        return
    if dataset.chunks[1:] != dataset.shape[1:]:
        raise SystemExit(f"{dataset.file.filename}: the chunks {dataset.chunks} of {dataset.name} have parts of rows: write it again with chunks of whole rows")
    rows = dataset.chunks[0]
    begins = {}
    for i in range(dataset.id.get_num_chunks()):
        info = dataset.id.get_chunk_info(i)
        begins[info.chunk_offset[0] // rows] = info.byte_offset
    for i in range(len(dataset)):
        if i // rows not in begins:
            raise SystemExit(f"{dataset.file.filename}: rows {i // rows * rows} and following of {dataset.name} were never written")
        yield begins[i // rows] + i % rows * size, size


def check(path, dataset, ranges):
    """Compares the first and the last row with what h5py reads."""
    with open(path, "rb") as f:
        for i in {0, len(ranges) - 1} if ranges else ():
            f.seek(ranges[i][0])
            if f.read(ranges[i][1]) != dataset[i].tobytes():
                raise SystemExit(f"{path}: row {i} of {dataset.name} is not at byte {ranges[i][0]}: write the file again without a user block")


def main(index, data, *rest):
    labels = rest[0] if rest and not os.path.exists(rest[0]) else None
    files = rest[1:] if labels else rest

    def rows():
        for path in files:
            with h5py.File(path, "r") as f:
                known = [0] * len(f[data]) if labels is None else [int(n) for n in f[labels][:]]
                if len(known) != len(f[data]):
                    raise SystemExit(f"{path}: {data} has {len(f[data])} rows, and {labels} has {len(known)}")
                shard = os.path.relpath(path, os.path.dirname(os.path.abspath(index)))
                ranges = list(row_ranges(f[data]))
                check(path, f[data], ranges)
                for (offset, length), label in zip(ranges, known):
                    yield {"shard": shard, "offset": offset, "length": length, "label": label}

    print(f"{index}: {lcache.index.write(index, rows())} rows")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
