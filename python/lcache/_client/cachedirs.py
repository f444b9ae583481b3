"""The place of a source's cache: a folder in each root, or a directory that is itself the cache."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import ArgumentError, Error
from .filelists import list_identity
from .match import HeldListing, Listing, difference, identity
from .trust import is_trusted, open_file, require_folder


def folders(source: str, cache: Any = None, listing: Sequence[str] = ()) -> tuple[str, ...]:
    """The folders of a source's cache, one in each root: <last name of the source>-<8 hex>.

    The digits are a hash of the source's whole path and of the listing's flags, so that two sources with the same last name have two folders.
    """
    source = list_identity(source)
    name = re.sub(r"[^\w.-]", "_", os.path.basename(source.rstrip("/")))[:80] or "root"
    digits = hashlib.sha256("\0".join([source, *listing]).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return tuple(os.path.join(root, f"{name}-{digits}") for root in roots(cache))


def roots(cache: Any) -> tuple[str, ...]:
    """cache= as absolute paths, one for each SSD; default: $LCACHE_CACHE, else lcache in the user's cache folder."""
    roots = cache if cache is not None else os.environ.get("LCACHE_CACHE") or os.path.join(cache_home(), "lcache")
    if isinstance(roots, (str, os.PathLike)):
        roots = os.fspath(roots).split(",")
    return tuple(os.path.abspath(os.path.expanduser(os.fspath(root))) for root in roots)


class Cache(NamedTuple):
    """A directory (or several) that is itself a cache of the source, not a root of caches. It keeps the options that it was made with."""

    dirs: tuple[str, ...]
    listing: Listing
    job: Mapping[str, Any]  # the order's options that the cache was made with
    memory: int | None  # bytes


def existing_cache(named: Listing, cache: Any) -> Cache | None:
    """The cache in the directory `cache`; None if the directory is a root. Raises ArgumentError if the cache has other samples than the program names."""
    dirs = roots(cache)
    if not _is_cache(dirs[0]):
        return None
    for folder in dirs:
        require_folder(folder)
    job = _read_job_file(dirs[0])
    if job is None:
        return Cache(dirs, named, {}, None) if os.path.lexists(os.path.join(dirs[0], "FORMAT")) else None
    held = HeldListing.of_job_file(job)
    if held.listing.source == named.source:  # a list of files that was edited is a source that has changed: ingest adapts the cache to it
        held = held._replace(identity=identity(named.source))
    differs = difference(named, held)
    if differs:
        described = held.listing.source if differs == "the source" else f"{held.listing.source}, listed with {differs}"
        raise ArgumentError(f"{dirs[0]} is the cache of {described}, and the program names {named.source}: give another cache=")
    kept = job.get("job")
    follow = held.listing.follow_links if held.listing.follow_links is False or job.get("follow_links_given") else None
    listing = held.listing._replace(source=named.source, follow_links=follow if named.follow_links is None else named.follow_links)
    return Cache(dirs, listing, kept if isinstance(kept, dict) else {}, job.get("memory") or None)


def _is_cache(folder: str) -> bool:
    """Whether a folder has a file of a cache. If others can write the folder, only files of this user and of root count, because anybody may put one there."""
    for name in ("job.json", "FORMAT"):
        try:
            found, above = os.lstat(os.path.join(folder, name)), os.stat(folder)
        except OSError:
            continue
        if is_trusted(above) or is_trusted(found):
            return True
    return False


def _read_job_file(folder: str) -> dict[str, Any] | None:
    """The job.json of a cache: its source and options. None if the file is missing or damaged."""
    try:
        fd = open_file(os.path.join(folder, "job.json"), os.O_RDONLY)
    except Error:
        raise  # it may be another user's
    except OSError:
        return None
    with os.fdopen(fd, "rb") as f:
        try:
            job = json.loads(f.read(16 << 20))
        except ValueError:
            return None
    return job if isinstance(job, dict) and job.get("source") else None


def cache_home() -> str:
    """The user's cache folder."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return given if os.path.isabs(given) else os.path.join(os.path.expanduser("~"), ".cache")
