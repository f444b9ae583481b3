"""Where the cache of a source lies: a folder in each root, or a directory that is its cache itself."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .errors import ArgumentError
from .match import Listing, Made, difference
from .replay import Options


def folders(source: str, cache: Any = None, listing: Sequence[str] = ()) -> tuple[str, ...]:
    """The cache's folders, one in each root: <last name of the source>-<8 hex>. The digits stand for the source's whole path and for
    what of it is listed, so that sources of one name do not meet."""
    name = re.sub(r"[^\w.-]", "_", os.path.basename(source.rstrip("/")))[:80] or "root"
    digits = hashlib.sha256("\0".join([source, *listing]).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return tuple(os.path.join(root, f"{name}-{digits}") for root in roots(cache))


def roots(cache: Any) -> tuple[str, ...]:
    roots = cache if cache is not None else os.environ.get("LCACHE_CACHE") or os.path.join(_cache_home(), "lcache")
    if isinstance(roots, (str, os.PathLike)):
        roots = os.fspath(roots).split(",")
    return tuple(os.path.abspath(os.path.expanduser(os.fspath(root))) for root in roots)


class Cache(NamedTuple):
    """A directory (or several) that is a cache of the source itself, and not a root of caches: it stays what it was made for."""

    dirs: tuple[str, ...]
    listing: Listing
    job: Mapping[str, Any]
    memory: int | None

    def merged(self, said: Options) -> Options:
        """What it was made for, where the program says nothing else; a recipe that is said says all of the order."""
        if said.recipe is not None or not self.job.get("recipe"):
            return said
        kept = Options(**{name: self.job.get(name) or None for name in ("recipe", "seed", "epochs", "batch_size", "drop_last", "params")})
        return Options(*(mine if mine is not None else theirs for mine, theirs in zip(said, kept)))


def cache_of(named: Listing, cache: Any) -> Cache | None:
    """The cache that `cache` is itself; None if it is a root. ArgumentError if it is a cache of something else."""
    dirs = roots(cache)
    job = _job_file(dirs[0])
    if job is None:
        return Cache(dirs, named, {}, None) if os.path.lexists(os.path.join(dirs[0], "FORMAT")) else None
    made = Made.on_disk(job)
    differs = difference(named, made)
    if differs:
        what = made.listing.source if differs == "the source" else f"{made.listing.source}, listed with {differs}"
        raise ArgumentError(f"{dirs[0]} is the cache of {what}; the program names {named.source}: give another cache=")
    kept = job.get("job")
    follow = made.listing.follow_links if made.listing.follow_links is False or job.get("follow_links_given") else None
    listing = made.listing._replace(source=named.source, follow_links=follow if named.follow_links is None else named.follow_links)
    return Cache(dirs, listing, kept if isinstance(kept, dict) else {}, job.get("memory") or None)


def _job_file(folder: str) -> dict[str, Any] | None:
    """What a cache says that it was made for; None if there is none, or it is damaged."""
    try:
        fd = os.open(os.path.join(folder, "job.json"), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as f:
        try:
            said = json.loads(f.read(16 << 20))
        except ValueError:
            return None
    return said if isinstance(said, dict) and said.get("source") else None


def _cache_home() -> str:
    given = os.environ.get("XDG_CACHE_HOME", "")
    return given if os.path.isabs(given) else os.path.join(os.path.expanduser("~"), ".cache")
