"""Whether a server, or a cache on disk, has just the samples that a program names; nothing here connects or changes anything.

The source that a program names decides: the same directory (device and inode), listed with the same filter, folders' rule, grouping and
labels. A filter that removes nothing is no difference. The Go side has the same rule for `lcache run`: source/match.go, with the same test cases.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Listing(NamedTuple):
    """A source, and what of it is a sample with which index and label."""

    source: str  # absolute, or with its scheme
    ext: tuple[str, ...] = ()  # ".jpg", in lower case; none: all files
    flat: bool = False
    group: str = "none"
    labels: str = ""  # a file, absolute; "": the folders' labels
    follow_links: bool | None = None  # None: not said

    @classmethod
    def of(
        cls, source: Any, ext: str | Iterable[str] = (), flat: bool = False, group: str = "none", labels: Any = None, follow_links: bool | None = None
    ) -> Listing:
        """What a program's arguments mean."""
        where = os.fspath(source)
        if not is_url(where):
            where = os.path.abspath(os.path.expanduser(where))
        endings = tuple(filter(None, ext.split(","))) if isinstance(ext, str) else tuple(ext)  # a str would be taken for its letters
        return cls(where, endings, bool(flat), group or "none", os.path.abspath(os.fspath(labels)) if labels is not None else "", follow_links)

    def link_flags(self) -> list[str]:
        """Of `lcache ingest` and `lcache serve`. They are no part of flags(), and so not of a cache's name: the rule changes no listing, it can
        only be an error."""
        return [] if self.follow_links is None else ["--follow-links" if self.follow_links else "--no-follow-links"]

    def flags(self) -> list[str]:
        """Of `lcache ingest`."""
        flags = [f"--ext={','.join(self.ext)}"] if self.ext else []
        flags += ["--flat"] if self.flat else []
        flags += [f"--group={self.group}"] if self.group != "none" else []
        flags += [f"--labels={self.labels}"] if self.labels else []
        return flags


class Made(NamedTuple):
    """A listing that a server or a cache has."""

    listing: Listing
    identity: str  # of the source that was listed; "": not known
    files: Mapping[str, int] | None  # how many have each extension; None: not counted
    outside_links: int  # samples reached through links that leave the source

    @classmethod
    def by_server(cls, source: str, said: Mapping[str, Any]) -> Made:
        """Of the answer to HELLO. A server from before `listing` says its source alone."""
        return cls(_listing(source, said), str(said.get("identity") or ""), _files(said.get("extensions")), _count(said.get("outside_links")))

    @classmethod
    def on_disk(cls, job: Mapping[str, Any]) -> Made:
        """Of a cache's job.json."""
        counted = job.get("extensions")
        source = str(job.get("source") or "")
        said = {**job, "ext": job.get("exts")}
        return cls(_listing(source, said), identity(source), _files(counted.get("files") if isinstance(counted, dict) else None), _count(job.get("outside_links")))


def is_url(source: str) -> bool:
    return "://" in source or source.startswith("tar:")


def identity(source: str) -> str:
    """What tells sources apart: "device:inode" of a directory, "" if there is none; the text itself of other kinds."""
    if is_url(source):
        return source
    try:
        found = os.stat(source)
    except (OSError, ValueError):
        return ""
    return f"{found.st_dev}:{found.st_ino}"


def difference(named: Listing, made: Made) -> str:
    """In what the samples that a program names differ from those that are there; "" if they are the same."""
    theirs = made.listing
    if named.source != theirs.source or made.identity:
        mine = identity(named.source)
        if not mine or mine != made.identity:
            return "the source"
    differ = []
    if not removes_nothing(named.ext, theirs.ext, made.files):
        differ.append(f"ext {_ext(theirs.ext)}, not {_ext(named.ext)}")
    if theirs.flat != named.flat:
        differ.append(f"flat {theirs.flat}, not {named.flat}")
    if theirs.group != named.group:
        differ.append(f"group {theirs.group}, not {named.group}")
    if not _same_file(theirs.labels, named.labels):
        differ.append(f"labels {theirs.labels or 'of the folders'}, not {named.labels or 'of the folders'}")
    if named.follow_links is False and made.outside_links:
        differ.append(f"follow_links, by which {made.outside_links} samples were found outside the source")
    return "; ".join(differ)


def removes_nothing(ext: Iterable[str], made: Iterable[str], files: Mapping[str, int] | None) -> bool:
    """Whether a filter leaves all the files that the filter `made` left, and those alone. Files that `made` removed are not known, so that
    the filter must not let in more."""
    mine, theirs = set(map(_clean, ext)), set(map(_clean, made))
    if mine == theirs:
        return True
    if not mine or (theirs and not mine <= theirs) or files is None:
        return False
    return mine.issuperset(files)


def _listing(source: str, said: Mapping[str, Any]) -> Listing:
    ext = said.get("ext")
    follow = said.get("follow_links")
    return Listing(
        source,
        tuple(map(str, ext)) if isinstance(ext, (list, tuple)) else (),
        bool(said.get("flat")),
        str(said.get("group") or "none"),
        str(said.get("labels") or ""),
        follow if isinstance(follow, bool) else None,
    )


def _files(said: Any) -> Mapping[str, int] | None:
    return said if isinstance(said, dict) else None


def _count(said: Any) -> int:
    return said if isinstance(said, int) and said > 0 else 0


_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")


def _clean(ext: str) -> str:
    ext = ext.translate(_LOWER)
    return ext if ext.startswith(".") else "." + ext


def _ext(ext: tuple[str, ...]) -> str:
    return ",".join(ext) or "of any kind"


def _same_file(a: str, b: str) -> bool:
    if a == b or not a or not b:
        return a == b
    try:
        return os.path.samefile(a, b)
    except OSError:
        return False
