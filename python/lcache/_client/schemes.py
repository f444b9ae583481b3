"""The prefixes of sources of shards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

# What the text of a source of shards begins with, before a colon. source/internal/records/kinds.go has the same list; a test compares them.
KINDS = ("tar", "ranges", "parquet", "arrow", "tfrecord", "megatron", "npy", "bin", "jsonl", "hdf5", "zip")

# The flags of sources of records, without dashes, in alphabetical order. FlagTable of source/internal/records/flags.go has the same names.
RECORD_FLAGS = ("columns", "dtype", "feature", "key", "label-column", "label-feature", "label-field", "record-bytes", "shape")


def record_flags(given: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The given flags of a source of records and their texts, by the names of the arguments of lcache.open, or by the flags' own."""
    found = []
    for flag in RECORD_FLAGS:
        value = given.get(flag.replace("-", "_"), given.get(flag))
        if value is not None:
            found.append((flag, _text(value)))
    return tuple(found)


def _text(value: Any) -> str:
    """The value of a flag as text. numpy's types and dtypes have names."""
    if isinstance(value, str):
        return value
    if isinstance(value, Iterable) and not isinstance(value, type):
        return ",".join(map(str, value))
    return str(getattr(value, "__name__", None) or getattr(value, "name", None) or value)


def of_records(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a Dataset for lcache.open: dtype and shape, which are also those of decode="array", only where a record's size comes from them."""
    source = given.get("source")
    if isinstance(source, str) and scheme(source) == "bin:" and given.get("record_bytes") is None:
        return dict(given)
    return {**given, "dtype": None, "shape": None}


def scheme(source: str) -> str:
    """The prefix of a source of shards, such as "tar:" or "ranges:"; "" for other sources."""
    kind, colon, rest = source.partition(":")
    return kind + colon if colon and kind in KINDS and not rest.startswith("//") else ""


def without_scheme(source: str) -> str:
    """The text of a source after that prefix."""
    return source[len(scheme(source)) :]
