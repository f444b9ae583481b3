"""Reads damaged files of records with the formats' own libraries, for TestRecordsDamaged. stdin has the cases as JSON, with the samples that lcache read.

A sample that lcache read must be the library's, if the library reads the file without an error. Exits with 1 if one differs, and prints a summary.
"""

import json
import re
import struct
import sys
import zipfile

import numpy
import pyarrow
import pyarrow.parquet


def arrow(path):
    table = pyarrow.ipc.open_stream(path).read_all()
    table.validate(full=True)
    return {str(i): cell for i, cell in enumerate(table.column(0).to_pylist())}


def parquet(path):
    table = pyarrow.parquet.read_table(path)
    table.validate(full=True)
    return {str(i): cell for i, cell in enumerate(table.column(0).to_pylist())}


def tfrecord(path):
    """As described by TensorFlow: length, its masked CRC, data, its masked CRC. Only lengths are followed here."""
    data, at, out = open(path, "rb").read(), 0, {}
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        if size > len(data) - at - 16:
            raise ValueError("truncated")
        out[str(len(out))] = data[at + 12 : at + 12 + size]
        at += 16 + size
    return out


def megatron(path):
    """As IndexedDataset of Megatron-LM reads the index."""
    index, data = open(path[: -len(".bin")] + ".idx", "rb").read(), open(path, "rb").read()
    if index[:9] != b"MMIDIDX\x00\x00" or struct.unpack_from("<Q", index, 9)[0] != 1:
        raise ValueError("no index")
    width = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 8, 7: 4, 8: 2}[index[17]]
    (count,) = struct.unpack_from("<Q", index, 18)
    lengths = numpy.frombuffer(index, "<i4", count, 34)
    pointers = numpy.frombuffer(index, "<i8", count, 34 + 4 * count)
    return {str(i): data[p : p + n * width] for i, (p, n) in enumerate(zip(pointers.tolist(), lengths.tolist())) if p >= 0 and n >= 0 and p + n * width <= len(data)}


def jsonl(path):
    lines = [line for line in re.split(rb"\r?\n", open(path, "rb").read()) if line.strip(b" \t\r")]
    return {str(i): line for i, line in enumerate(lines)}


def windows(path):
    data = open(path, "rb").read()
    return {str(i): data[64 * i : 64 * i + 64] for i in range(len(data) // 64)}


def npy(path):
    return {str(i): row.tobytes() for i, row in enumerate(numpy.load(path))}


def members(path):
    with zipfile.ZipFile(path) as z:
        out = {}
        for member in z.infolist():
            name = member.orig_filename.encode("utf-8" if member.flag_bits & 0x800 else "cp437").decode("latin-1")
            folder, _, base = name.rpartition("/")
            if not base.partition(".")[2]:  # without an extension it belongs to no sample
                continue
            key = (folder + "/" if folder else "") + base.partition(".")[0]
            # CRC errors are the library's, and lcache does not check the CRC of members: read the range.
            z.fp.seek(member.header_offset)
            z.fp.seek(member.header_offset + 30 + sum(struct.unpack("<26x2H", z.fp.read(30))))
            out.setdefault(key, {})[name] = z.fp.read(member.compress_size)  # the last one of a name, as getinfo() gives it
        return {key: b"".join(parts.values()) for key, parts in out.items()}


KINDS = {"arrow": arrow, "parquet": parquet, "tfrecord": tfrecord, "megatron": megatron, "jsonl": jsonl, "bin": windows, "npy": npy, "zip": members}


def main():
    counts, wrong = {}, 0
    for case in json.load(sys.stdin):
        kind = counts.setdefault(case["kind"], {"equal": 0, "only lcache read them": 0, "only the library read all": 0, "differ": 0})
        try:
            want = KINDS[case["kind"]](case["file"])
        except Exception:  # noqa: BLE001 - any error of a library
            kind["only lcache read them"] += 1
            continue
        ours = [(bytes.fromhex(name).decode("latin-1"), got) for name, got in zip(case["names"], case["samples"])]
        differ = [name for name, got in ours if got is not None and (name not in want or want[name] != bytes.fromhex(got))]
        if differ or len(want) != len(ours):
            kind["differ"] += 1
            wrong += 1
            if wrong <= 40:
                print(f"{case['kind']}: {case['what']}: lcache has {len(ours)} samples, the library {len(want)}; these differ: {differ[:5]}")
        else:
            kind["only the library read all" if any(got is None for _, got in ours) else "equal"] += 1
    for name, kind in counts.items():
        print(f"{name}: files whose samples are " + ", ".join(f"{k} {v}" for k, v in kind.items()))
    return 1 if wrong else 0


sys.exit(main())
