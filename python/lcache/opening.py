"""lcache.open: a Job over a source. It starts the source's server if none runs."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ._client import buckets
from ._client.cachedirs import Cache, existing_cache, folders
from ._client.clusters import Cluster
from ._client.embedded import Home, ensure_server
from ._client.environment import World, launched_world
from ._client.match import Listing
from ._client.options import Options, param_texts
from ._client.program import program
from ._client.replay import replay_for
from ._client.schemes import record_flags
from .errors import ArgumentError
from .job import Job, require_token
from .running_servers import filter_differs, job_at, offered_job, require_match
from .written_sources import WrittenSource, discarded_on_error, written_index

_log = logging.getLogger("lcache")


def open(  # the name is part of the API
    source: str | os.PathLike[str] | None = None,
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
    columns: str | Iterable[str] | None = None,
    label_column: str | None = None,
    feature: str | Iterable[str] | None = None,
    label_feature: str | None = None,
    record_bytes: int | None = None,
    dtype: Any = None,
    shape: int | Sequence[int] | None = None,
    label_field: str | None = None,
    key: str | None = None,
    stream: bool = False,
    cluster: str | None = None,
    cluster_key: str | os.PathLike[str] | None = None,
    ranges: Iterable[Mapping[str, Any] | tuple[Any, ...]] | None = None,
) -> Job:
    """Opens a Job over a source, and starts a server for the source if none runs.

    The server is the first of these:

    - the server at `socket`, if given. It must have this source, listed in the same way;
    - a server that the environment offers ($LCACHE_SOCKET, $LCACHE_SOCKET_<NAME>, as `lcache run` sets them), if it has this source, listed in the same way;
    - the source's own server, which is started if it does not run.

    cache is the cache of the source, or a root with a folder for each dataset, or several roots on as many SSDs. The default is $LCACHE_CACHE, or lcache in
    the user's cache folder. The other arguments are flags of `lcache ingest`:

    - recipe, seed, batch_size, drop_last, params: the order. If a running server has another order, this job pushes its own. An option that can't differ
      raises an ArgumentError that names both values.
    - budget, memory: bytes, or text like "2GB". They have no effect on a running server.
    - world_size, rank: by default those of torchrun's or Slurm's variables.
    - follow_links=False refuses links that leave the source. By default they are followed.
    - allow_empty=True accepts class folders without files.
    - s3: settings of a source s3://BUCKET/PREFIX/: endpoint_url, region, profile (text), path_style, unsigned, requester_pays (True or False). Credentials
      come from where the AWS tools find them.
    - on_error: "fail" (default: a sample that can't be read raises a SampleError) or "skip" (its batch is shorter).
    - timeout: the deadline of every later wait, in seconds.
    - job: a text that names one of several jobs on the same server, as for connect.
    - part: the part that comes first in samples of shards: an extension in tar shards, a column of records.
    - columns, label_column: of records: the columns to serve as parts (default: all that can be), and the column of labels (default: label or labels).
    - feature, label_feature: of TFRecord files with tf.train.Example: the features to serve as parts (default: the whole record), and the label's.
    - record_bytes, or dtype and shape: the size of a record of bin:…, and of a window over npy:….
    - label_field, key: of JSON Lines: the fields with the label and with the sample's name.
    - stream=True allows compressed shards. They are read front to back before open returns.
    - cluster: how a new server finds those of other machines: "auto" (by the launcher's variables), "listen", "dns:NAME", or addresses like "node1,node2".
      The default is $LCACHE_CLUSTER; "" is no cluster. A running server must be in that cluster.
    - cluster_key: the file with the cluster's secret, which `lcache cluster key` makes. The default is $LCACHE_CLUSTER_KEY.
    - ranges: rows of (shard, offset, length), in place of a source: samples are these byte ranges of files on this machine. Rows are those of lcache.index,
      but shards are paths in any folder, and ranges may overlap. The index is kept in the cache's folder: the same rows have the same cache.
    - likely_batch_size: sizes a new server's memory if batch_size is unknown. No order depends on it.

    Raises Error or a subclass: ArgumentError for options that don't fit, ConnectionError and TimeoutError if there is no server before the deadline.
    """
    where = named_source(source, ranges, cache)
    with discarded_on_error(where):
        return open_job(where, Options.of(locals()))


def named_source(source: Any, ranges: Iterable[Any] | None, cache: Any) -> Any:
    """The source that a program names. ranges: rows in its place, of which the index is written."""
    if ranges is None:
        if source is None:
            raise ArgumentError("open: give a source, or ranges=")
        return source
    if source is not None:
        raise ArgumentError(f"open {source!r:.80} with ranges=: give a source or ranges=, not both")
    return written_index(ranges, cache)


def open_job(source: Any, given: Options) -> Job:
    """lcache.open, with its keyword arguments as one value."""
    token = require_token(given.job)
    launched = launched_world()
    where = os.fspath(source)
    s3_flags = buckets.flags(where, given.s3)
    endpoint, records = buckets.endpoint(where, given.s3), record_flags(given.changed())
    named = Listing.of(source, given.ext, given.flat, given.group, given.labels, given.follow_links, given.part, endpoint, records)
    cluster = Cluster.of(given.cluster, given.cluster_key)
    given = replace(given, params=param_texts(given.params))
    order = given.of_order()
    rank, world = launched.rank if given.rank is None else given.rank, launched.size if given.world_size is None else given.world_size
    opened, started = job_at(given.socket, named, given.timeout, rank) if given.socket is not None else offered_job(named, given.timeout, rank), False
    if opened is None:
        existing = existing_cache(named, given.cache)
        if existing is not None:
            named, order = existing.listing, order.with_order(existing.job)
            given = replace(given, memory=given.memory if given.memory is not None else existing.memory)
        flags = (order if order.batch_size is not None else replace(order, batch_size=given.likely_batch_size)).order_flags()
        if order.recipe is not None or world > 1:  # also without a recipe each rank pushes an order and needs a share of the memory
            flags += _world_flags(world, launched)
        home = _home(named, existing, given, s3_flags, flags)._replace(variables=cluster.variables())
        if isinstance(source, WrittenSource):
            home = home._replace(dirs=source.dirs)
        opened, started = _own(named, rank, home)
        if order.on_error is None:
            order = replace(order, on_error="fail")
    try:
        if started:
            cluster.warn_if_alone()
        elif cluster.has_others():
            cluster.require(opened.stats(), opened.pid)
        opened.name_job(token)
        opened.set_order(order, replay_for(order, opened.info, world, program))
    except BaseException:
        opened.close()
        raise
    if not started and (given.budget, given.memory) != (None, None):
        _log.info("budget= and memory= have no effect on the running server (pid %d)", opened.pid)
    return opened


def _world_flags(world: int, launched: World) -> list[str]:
    flags = ["--world-size", str(world)]
    if world == launched.size and launched.local_ranks is not None and len(launched.local_ranks) < world:
        flags += ["--ranks", ",".join(map(str, launched.local_ranks))]
    return flags


def _home(named: Listing, existing: Cache | None, given: Options, s3_flags: list[str], order_flags: list[str]) -> Home:
    """The place of the source's own server, and how to start it. existing: the cache that the program named; None: a cache in a root."""
    flags = [*order_flags, *(["--budget", str(given.budget)] if given.budget is not None else [])]
    common = ("--memory", str(given.memory)) if given.memory is not None else ()
    serving = ("--on-error", given.on_error) if given.on_error is not None else ()
    shared = named if existing is not None else named._replace(ext=())  # a filter that removes no file shares the cache of the source without a filter
    dirs = existing.dirs if existing is not None else folders(named.source, given.cache, shared.flags())
    filtered = folders(named.source, given.cache, named.flags()) if named.flags() != shared.flags() else ()
    switches = (*(("--allow-empty",) if given.allow_empty else ()), *(("--stream",) if given.stream else ()))
    listing = (*shared.flags(), *s3_flags, *named.link_flags(), *switches)
    home = Home(named.source, dirs, (*listing, *flags, *common), (*common, *named.link_flags(), *serving), given.timeout)
    return home._replace(ext=named.ext_flag(), filtered=filtered) if filtered else home


def _own(named: Listing, rank: int, home: Home) -> tuple[Job, bool]:
    """A job of the source's own server, and whether this call started that server."""
    home, started = ensure_server(home)
    opened = Job(home.socket, home.timeout, home.without_filter(), rank)
    opened.attach()
    if home.filtered and filter_differs(named, opened):
        opened.close()
        home, started = ensure_server(home.with_filter())
        opened = Job(home.socket, home.timeout, home, rank)
        opened.attach()
    require_match(named, opened)
    return opened, started
