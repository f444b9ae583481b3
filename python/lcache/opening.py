"""lcache.open: a Job over a source, without a server to start by hand."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ._client import buckets
from ._client.cachedirs import existing_cache, folders
from ._client.embedded import Home, ensure_server, lcache_program
from ._client.environment import launched_world
from ._client.match import Listing
from ._client.replay import Options, param_texts, replay_for
from .job import Job, require_token
from .running_servers import filter_differs, job_at, offered_job, require_match

_log = logging.getLogger("lcache")


def open(  # the name is part of the API
    source: str | os.PathLike[str],
    cache: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    *,
    recipe: str | None = None,
    seed: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    world_size: int | None = None,
    rank: int | None = None,
    drop_last: bool | None = None,
    params: Mapping[str, Any] | None = None,
    budget: int | str | None = None,
    memory: int | str | None = None,
    ext: str | Iterable[str] = (),
    flat: bool = False,
    group: str = "none",
    labels: str | os.PathLike[str] | None = None,
    allow_empty: bool = False,
    follow_links: bool | None = None,
    s3: Mapping[str, Any] | None = None,
    on_error: str | None = None,
    socket: str | os.PathLike[str] | None = None,
    timeout: float = 60.0,
    likely_batch_size: int | None = None,
    job: str | None = None,
    part: str | None = None,
    stream: bool = False,
) -> Job:
    """A Job over a source, with a server of its own if none runs for it yet.

    A server that the environment offers ($LCACHE_SOCKET, $LCACHE_SOCKET_<NAME>, as `lcache run` sets them) is used if it has just this source,
    listed in this way. The server at socket must have it. Otherwise the source gets a server of its own. cache is that source's cache, or a root
    (or several, on as many SSDs) with a folder for each dataset; default: $LCACHE_CACHE, else lcache in the user's cache folder.

    The other arguments are the flags of `lcache ingest`. A server that runs already may have another order (recipe, seed, batch_size, drop_last,
    params). This job then has its own order all the same, which is pushed. An option that can't differ is an ArgumentError that names both values.
    budget and memory (bytes, or text like "2GB") stay those of that server. world_size and rank come from torchrun's or Slurm's variables if not
    given. follow_links=False refuses links that leave the source; by default they are followed. allow_empty=True takes class folders without a file for
    classes, and not for an error. s3 has the settings of a source s3://BUCKET/PREFIX/: endpoint_url, region, profile (text), path_style, unsigned,
    requester_pays (True or False). Credentials come from where the AWS tools find them. on_error is "fail" (a sample that can't be
    read is a SampleError, the default) or "skip" (the sample is left out of its batch, which is then shorter). timeout is the deadline of every
    later wait, in seconds. job is a text that names one of several jobs on the same server, as for connect.
    part is the extension of the part that comes first in samples of tar shards. stream=True allows shards that are compressed: they are read front to back
    before this returns.
    likely_batch_size sizes a new server's memory where batch_size is unknown; no order depends on it.

    Raises Error or a subclass: ArgumentError for options that don't fit, ConnectionError and TimeoutError for a server that does not come.
    """
    token = require_token(job)
    launched = launched_world()
    where = os.fspath(source)
    s3_flags = buckets.flags(where, s3)
    named = Listing.of(source, ext, flat, group, labels, follow_links, part, buckets.endpoint(where, s3))
    options = Options(recipe, seed, epochs, batch_size, world_size, drop_last, param_texts(params), on_error)
    rank, world = launched.rank if rank is None else rank, launched.size if world_size is None else world_size
    opened = job_at(socket, named, timeout, rank) if socket is not None else offered_job(named, timeout, rank)
    if opened is None:
        existing = existing_cache(named, cache)
        if existing is not None:
            named, options = existing.listing, existing.merged(options)
            memory = memory if memory is not None else existing.memory
        flags = (options if options.batch_size is not None else options._replace(batch_size=likely_batch_size)).flags()
        if options.recipe is not None or world > 1:  # without a recipe, too, each rank pushes an order and takes a share of the memory
            flags += ["--world-size", str(world)]
            if world == launched.size and launched.local_ranks is not None and len(launched.local_ranks) < world:
                flags += ["--ranks", ",".join(map(str, launched.local_ranks))]
        flags += ["--budget", str(budget)] if budget is not None else []
        common = ("--memory", str(memory)) if memory is not None else ()
        serving = ("--on-error", on_error) if on_error is not None else ()
        shared = named if existing is not None else named._replace(ext=())  # filters that remove nothing share a cache
        dirs = existing.dirs if existing is not None else folders(named.source, cache, shared.flags())
        filtered = folders(named.source, cache, named.flags()) if named.flags() != shared.flags() else ()
        listing = (*shared.flags(), *s3_flags, *named.link_flags(), *(("--allow-empty",) if allow_empty else ()), *(("--stream",) if stream else ()))
        home = Home(named.source, dirs, (*listing, *flags, *common), (*common, *named.link_flags(), *serving), timeout)
        if filtered:
            home = home._replace(ext=named.ext_flag(), filtered=filtered)
        home, started = ensure_server(home)
        opened = Job(home.socket, timeout, home.without_filter(), rank)
        opened.attach()
        if home.filtered and filter_differs(named, opened):
            opened.close()
            home, started = ensure_server(home.with_filter())
            opened = Job(home.socket, timeout, home, rank)
            opened.attach()
        require_match(named, opened)
        if on_error is None:
            options = options._replace(on_error="fail")
    else:
        started = False
    try:
        opened.name_job(token)
        opened.set_order(options, replay_for(options, opened.info, world, lcache_program))
    except BaseException:
        opened.close()
        raise
    if not started and (budget, memory) != (None, None):
        _log.info("budget and memory are those that the server (pid %d) was started with", opened.pid)
    return opened
