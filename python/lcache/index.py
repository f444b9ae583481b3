"""Writes index files: samples that are byte ranges of larger files, for the source ranges:INDEX.

    import lcache.index

    rows = [("shard-0.bin", 0, 4096), ("shard-0.bin", 4096, 4096)]
    lcache.index.write("/data/index.tsv", rows)
    job = lcache.open("ranges:/data/index.tsv")

A row is (shard, offset, length), or a mapping with these keys and optionally part, name, label and xxh3, the checksum of the range's bytes:
an integer, as xxhash.xxh3_64_intdigest returns it, or its 16 hexadecimal digits. Shards are relative to the index's folder. Rows of
one shard follow each other, and sample i is row i. Adjacent rows with one name and different parts are one sample.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ._client.replaced import replaced
from .errors import ArgumentError

__all__ = ["write"]

_COLUMNS = ("shard", "offset", "length", "part", "name", "label", "xxh3")
_NEEDED = _COLUMNS[:3]

ShardOf = Callable[[int, str, str], "tuple[str, int]"]


def write(path: str | os.PathLike[str], rows: Iterable[Mapping[str, Any] | tuple[Any, ...]], *, overlap: bool = False) -> int:
    """Writes an index file, after checking that each range is in its shard, and returns the number of rows.

    Ranges of a shard must not overlap, unless overlap is true. The file is replaced only if all rows are right. The rows may be a generator: only
    their offsets are kept in memory, and not even these with overlap=True.
    """
    return write_rows(path, rows, _below, overlap)


def write_rows(path: str | os.PathLike[str], rows: Iterable[Any], shard_of: ShardOf, overlap: bool) -> int:
    """write for shards that shard_of finds: shard_of(row, folder of the index, shard) is the shard's name in the index, and its size."""
    target = os.path.abspath(os.fspath(path))
    folder = os.path.dirname(target)
    with replaced(target) as f:
        out = io.TextIOWrapper(f, encoding="utf-8", errors="surrogateescape", newline="")
        count = _write(out, folder, rows, shard_of, overlap)
        out.detach()  # which flushes it
        f.flush()
        os.fsync(f.fileno())
        os.fchmod(f.fileno(), 0o666 & ~_umask())
    return count


def _write(out: Any, folder: str, rows: Iterable[Any], shard_of: ShardOf, overlap: bool) -> int:
    columns: tuple[str, ...] = ()
    shard, name, size = None, "", 0
    seen: set[str] = set()
    spans: list[tuple[int, int, int]] = []  # of the shard: begin, end, row
    count = 0
    for i, given in enumerate(rows):
        row = _row(i, given)
        if not columns:
            columns = tuple(c for c in _COLUMNS if c in row)
            if "part" in columns and "name" not in columns:
                raise ArgumentError(f"row {i}: it has a part but no name, which says which rows are one sample")
            out.write("\t".join(columns) + "\n")
        if tuple(c for c in _COLUMNS if c in row) != columns:
            raise ArgumentError(f"row {i}: it has other keys than the first row: {', '.join(row)}, not {', '.join(columns)}")
        if row["shard"] != shard:
            _check_overlaps(shard, spans)
            shard = row["shard"]
            if shard in seen:
                raise ArgumentError(f"row {i}: shard {shard!r} comes again after another one: sort the rows by shard")
            seen.add(shard)
            name, size = shard_of(i, folder, shard)
        begin, end = row["offset"], row["offset"] + row["length"]
        if end > size:
            raise ArgumentError(f"row {i}: its range ends at byte {end}, but shard {shard!r} has {size}")
        if not overlap and end > begin:
            spans.append((begin, end, i))
        row["shard"] = name
        out.write("\t".join(str(row[c]) for c in columns) + "\n")
        count = i + 1
    if not columns:
        raise ArgumentError("there are no rows")
    _check_overlaps(shard, spans)
    return count


def _row(i: int, given: Any) -> dict[str, Any]:
    """A row with checked values."""
    if isinstance(given, Mapping):
        row = {str(k): "" if v is None else v for k, v in given.items() if v is not None or k == "xxh3"}
    elif isinstance(given, (tuple, list)) and len(given) == len(_NEEDED):
        row = dict(zip(_NEEDED, given))
    else:
        raise ArgumentError(f"row {i}: it is {type(given).__name__}, want (shard, offset, length) or a mapping")
    unknown = [k for k in row if k not in _COLUMNS]
    lacking = [k for k in _NEEDED if k not in row]
    if unknown or lacking:
        raise ArgumentError(f"row {i}: " + (f"key {unknown[0]!r} is unknown: use {', '.join(_COLUMNS)}" if unknown else f"it has no {lacking[0]}"))
    for key, least, most in (("offset", 0, 2**63 - 1), ("length", 0, 2**32 - 1), ("label", -(2**31), 2**31 - 1)):
        if key in row:
            row[key] = _integer(i, key, row[key], least, most)
    if row.get("xxh3", "") != "":
        row["xxh3"] = _xxh3(i, row["xxh3"])
    row["shard"] = os.fspath(row["shard"])
    for key in ("shard", "part", "name"):
        if key in row and (not isinstance(row[key], str) or any(c in row[key] for c in "\t\r\n") or (not row[key] and key != "part")):
            raise ArgumentError(f"row {i}: its {key} is {row[key]!r}, want a text without tabs and line ends")
    return row


def _integer(i: int, key: str, value: Any, least: int, most: int) -> int:
    try:
        number = value.__index__()
    except AttributeError:
        raise ArgumentError(f"row {i}: its {key} is {value!r}, want an integer") from None
    if not least <= number <= most:
        raise ArgumentError(f"row {i}: its {key} is {number}, want {least} to {most}")
    return int(number)


def _xxh3(i: int, value: Any) -> str:
    """A checksum as 16 hexadecimal digits."""
    if isinstance(value, str):
        if re.fullmatch("[0-9a-fA-F]{16}", value) is None:
            raise ArgumentError(f"row {i}: its xxh3 is {value!r}, want an integer or 16 hexadecimal digits")
        return value
    return f"{_integer(i, 'xxh3', value, 0, 2**64 - 1):016x}"


def _below(i: int, folder: str, shard: str) -> tuple[str, int]:
    """A shard below the index's folder."""
    if os.path.isabs(shard) or ".." in shard.split("/") or "://" in shard:
        raise ArgumentError(f"row {i}: shard {shard!r} is not below {folder}: write the index to a folder that has all shards, and name them relative to it")
    try:
        found = os.stat(os.path.join(folder, shard))
    except OSError as e:
        raise ArgumentError(f"row {i}: shard {shard!r} in {folder}: {e.strerror}") from None
    return shard, found.st_size


def _check_overlaps(shard: Any, spans: list[tuple[int, int, int]]) -> None:
    spans.sort()
    for (_, end, a), (begin, _, b) in zip(spans, spans[1:]):
        if begin < end:
            raise ArgumentError(f"rows {a} and {b}: their ranges of shard {shard!r} overlap: correct them, or give overlap=True")
    spans.clear()


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
