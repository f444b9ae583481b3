"""Compares the samples of a server, or of a cache on disk, with those that a program names. Nothing here connects or changes anything.

They must come from the same directory (device and inode), listed with the same filter, rule for folders, grouping and labels. A filter that removes no
file makes no difference. source/match.go has the same rule for `lcache run`, with the same test cases.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..errors import ArgumentError
from .buckets import plain_endpoint
from .filelists import absolute, list_identity
from .schemes import record_flags, scheme


class Listing(NamedTuple):
    """A source, and the options that decide which of its files are samples, and their indices and labels."""

    source: str  # absolute, with its scheme if it has one
    ext: tuple[str, ...] = ()  # such as ".jpg", in lower case; empty: all files
    flat: bool = False
    group: str = "none"
    labels: str = ""  # absolute path of a file; "": the folders are the labels
    follow_links: bool | None = None  # None: not given
    part: str = ""  # the extension of the part that comes first; "": chosen by a rule
    endpoint: str = ""  # of a bucket outside AWS; buckets of one name at two endpoints differ
    records: tuple[tuple[str, str], ...] = ()  # the flags of a source of records, and their values

    @classmethod
    def of(
        cls,
        source: Any,
        ext: str | Iterable[str] = (),
        flat: bool = False,
        group: str = "none",
        labels: Any = None,
        follow_links: bool | None = None,
        part: str | None = None,
        endpoint: str = "",
        records: tuple[tuple[str, str], ...] = (),
    ) -> Listing:
        """The listing that a program's arguments name."""
        where = os.fspath(source)
        kind = scheme(where)
        if kind and "://" not in where:
            where = absolute(where)
        elif is_url(where):
            _refuse_secrets(where)
            where = canonical(where)
        else:
            where = os.path.abspath(os.path.expanduser(where))
        endings = tuple(filter(None, ext.split(","))) if isinstance(ext, str) else tuple(ext)  # a str is one text, not a sequence of letters
        listed = os.path.abspath(os.fspath(labels)) if labels is not None else ""
        return cls(where, endings, bool(flat), group or "none", listed, follow_links, part or "", endpoint, records)

    def link_flags(self) -> list[str]:
        """The flag about links of `lcache ingest` and `lcache serve`.

        flags() and the name of a cache leave it out, because the rule about links never changes a listing. It can only raise an error.
        """
        return [] if self.follow_links is None else ["--follow-links" if self.follow_links else "--no-follow-links"]

    def ext_flag(self) -> tuple[str, ...]:
        """The flag about extensions, if there is a filter."""
        return (f"--ext={','.join(self.ext)}",) if self.ext else ()

    def flags(self) -> list[str]:
        """The flags of `lcache ingest` for this listing, without the flag about links."""
        flags = [*self.ext_flag()]
        flags += ["--flat"] if self.flat else []
        flags += [f"--group={self.group}"] if self.group != "none" else []
        flags += [f"--labels={self.labels}"] if self.labels else []
        flags += [f"--part={self.part}"] if self.part else []
        flags += [f"--{name}={value}" for name, value in self.records]
        flags += [f"--s3-endpoint-url={self.endpoint}"] if self.endpoint else []
        return flags


class HeldListing(NamedTuple):
    """The listing that a server or a cache holds."""

    listing: Listing
    identity: str  # of the source that was listed; "": unknown
    files: Mapping[str, int] | None  # the number of files by extension; None: not counted
    outside_links: int  # samples reached through links that leave the source

    @classmethod
    def of_server(cls, source: str, listing: Mapping[str, Any]) -> HeldListing:
        """Reads the listing in a server's answer to HELLO."""
        return cls(_listing(source, listing), str(listing.get("identity") or ""), _files(listing.get("extensions")), _count(listing.get("outside_links")))

    @classmethod
    def of_job_file(cls, job: Mapping[str, Any]) -> HeldListing:
        """Reads the listing in a cache's job.json."""
        counted = job.get("extensions")
        source = str(job.get("source") or "")
        files = _files(counted.get("files")) if isinstance(counted, dict) else None
        identified = str(job.get("identity") or "") or identity(source)
        return cls(_listing(source, {**job, "ext": job.get("exts")}), identified, files, _count(job.get("outside_links")))


def is_url(source: str) -> bool:
    """Whether a source is an address, and not a directory: s3://…, http(s)://…, tar:…, ranges:…"""
    return "://" in source or scheme(source) != ""


def canonical(source: str) -> str:
    """The normal form of a URL: s3://bucket/prefix and s3://bucket/prefix/ are the same."""
    s3 = re.fullmatch(r"s3://([^/]+)(?:/(.*?))?/*", source, re.DOTALL)
    return f"s3://{s3[1]}/{s3[2] + '/' if s3[2] else ''}" if s3 else source


def _refuse_secrets(source: str) -> None:
    """Raises ArgumentError for an address that may contain a secret, which would appear in file names and messages. The error does not show it."""
    url = re.match(r"((?:[a-z0-9]+:)?[A-Za-z][A-Za-z0-9+.-]*://)(([^/?#]*).*)", source, re.DOTALL)
    if url is None:
        return
    scheme, rest, host = url.groups()
    has = "a query" if "?" in rest else "a fragment (#)" if "#" in rest and "s3://" not in scheme else ""
    if "@" in host or (":" in host and not re.fullmatch(r"[^:]*:\d*|\[.*", host)):  # a secret key of AWS may have slashes
        has, rest = "a user or a password", rest.rpartition("@")[2] if "@" in rest else host.partition(":")[0]
    if has:
        shown = scheme + re.split("[?#]", rest)[0]
        raise ArgumentError(f"open source {shown}: it has {has}: give an address without it; credentials of a bucket come from where the AWS tools find them")


def identity(source: str) -> str:
    """A text that differs between different sources: "device:inode" of a directory, that of its content of a list KIND:@FILE, else the text itself; "" if the
    directory is missing."""
    if is_url(source):
        return canonical(list_identity(source))
    try:
        found = os.stat(source)
    except (OSError, ValueError):
        return ""
    return f"{found.st_dev}:{found.st_ino}"


def difference(named: Listing, held: HeldListing) -> str:
    """The difference between the samples that a program names and the samples of a server or cache, as text; "": they are the same."""
    theirs = held.listing
    if named.source != theirs.source or held.identity:
        here = identity(named.source)
        if not here or here != canonical(held.identity):
            return "the source"
    differ = []
    if named.endpoint and named.endpoint != theirs.endpoint:
        return "the source"
    if not removes_nothing(named.ext, theirs.ext, held.files):
        differ.append(f"ext {_ext(theirs.ext)}, not {_ext(named.ext)}")
    if theirs.flat != named.flat:
        differ.append(f"flat {theirs.flat}, not {named.flat}")
    if theirs.group != named.group:
        differ.append(f"group {theirs.group}, not {named.group}")
    if _clean(theirs.part) != _clean(named.part):
        differ.append(f"part {theirs.part or 'not chosen'}, not {named.part or 'not chosen'}")
    mine, others = dict(named.records), dict(theirs.records)
    for name in sorted({*mine, *others}):
        if mine.get(name) != others.get(name):
            differ.append(f"{name.replace('-', '_')} {others.get(name, 'not chosen')}, not {mine.get(name, 'not chosen')}")
    if not _same_file(theirs.labels, named.labels):
        differ.append(f"labels {theirs.labels or 'of the folders'}, not {named.labels or 'of the folders'}")
    if named.follow_links is False and held.outside_links:
        differ.append(f"follow_links, by which {held.outside_links} samples were found outside the source")
    return "; ".join(differ)


def removes_nothing(ext: Iterable[str], applied: Iterable[str], files: Mapping[str, int] | None) -> bool:
    """Whether the filter ext leaves exactly the files that the filter `applied` left.

    The files that `applied` removed are unknown, so ext must not admit more extensions.
    """
    mine, theirs = set(map(_clean, ext)), set(map(_clean, applied))
    if mine == theirs:
        return True
    if not mine or (theirs and not mine <= theirs) or files is None:
        return False
    return mine.issuperset(files)


def _listing(source: str, fields: Mapping[str, Any]) -> Listing:
    ext = fields.get("ext")
    follow = fields.get("follow_links")
    return Listing(
        source,
        tuple(map(str, ext)) if isinstance(ext, (list, tuple)) else (),
        bool(fields.get("flat")),
        str(fields.get("group") or "none"),
        str(fields.get("labels") or ""),
        follow if isinstance(follow, bool) else None,
        str(fields.get("first_part") or ""),
        _endpoint(fields),
        record_flags(records) if isinstance(records := fields.get("record_flags"), dict) else (),
    )


def _endpoint(fields: Mapping[str, Any]) -> str:
    """The endpoint of a bucket, from a server's answer to HELLO or a cache's job.json."""
    if "s3_endpoint" in fields:
        return plain_endpoint(str(fields["s3_endpoint"] or ""))
    remote = fields.get("remote")
    s3 = remote.get("s3") if isinstance(remote, dict) else None
    return plain_endpoint(str(s3.get("endpoint_url") or "")) if isinstance(s3, dict) else ""


def _files(value: Any) -> Mapping[str, int] | None:
    return value if isinstance(value, dict) else None


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


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
