"""The prefixes of sources of shards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

# What the text of a source of shards begins with, before a colon. source/internal/records/kinds.go has the same list; a test compares them.
KINDS = ("tar", "ranges", "arrow")

# The flags of sources of records, without dashes, in alphabetical order. FlagTable of source/internal/records/flags.go has the same names.
RECORD_FLAGS = ("columns", "label-column")


def record_flags(given: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The given flags of a source of records and their texts, by the names of the arguments of lcache.open, or by the flags' own."""
    found = []
    for flag in RECORD_FLAGS:
        value = given.get(flag.replace("-", "_"), given.get(flag))
        if value is not None:
            found.append((flag, value if isinstance(value, str) else ",".join(map(str, value)) if isinstance(value, Iterable) else str(value)))
    return tuple(found)


def scheme(source: str) -> str:
    """The prefix of a source of shards, such as "tar:" or "ranges:"; "" for other sources."""
    kind, colon, rest = source.partition(":")
    return kind + colon if colon and kind in KINDS and not rest.startswith("//") else ""


def without_scheme(source: str) -> str:
    """The text of a source after that prefix."""
    return source[len(scheme(source)) :]
