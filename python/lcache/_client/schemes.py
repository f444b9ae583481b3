"""The prefixes of sources of shards."""

from __future__ import annotations

# What the text of a source of shards begins with, before a colon. source/internal/records/kinds.go has the same list; a test compares them.
KINDS = ("tar", "ranges")


def scheme(source: str) -> str:
    """The prefix of a source of shards, such as "tar:" or "ranges:"; "" for other sources."""
    kind, colon, rest = source.partition(":")
    return kind + colon if colon and kind in KINDS and not rest.startswith("//") else ""


def without_scheme(source: str) -> str:
    """The text of a source after that prefix."""
    return source[len(scheme(source)) :]
