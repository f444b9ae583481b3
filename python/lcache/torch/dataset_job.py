"""Opens the job that a dataset reads: that of a source, or that of a running server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .._client.options import Options
from ..errors import ArgumentError, Error
from ..job import Job, connect
from ..opening import open_job
from ..written_sources import discarded_on_error

# Batch sizes to try for the size of a new server's memory. The real one is not known yet, because the dataset is made before its loader.
_LIKELY_BATCH_SIZES = (256, 32, None)


def _open(source: Any, options: Options) -> Job:
    """lcache.open, with smaller likely batch sizes if memory is short."""
    if options.batch_size is not None or options.likely_batch_size is not None:
        return open_job(source, options)
    for size in _LIKELY_BATCH_SIZES:
        try:
            return open_job(source, replace(options, likely_batch_size=size))
        except Error as e:
            if size is None or "memory" not in str(e):
                raise  # a smaller batch size helps only if memory is short, because of large samples
    raise AssertionError


def job_of(source: Any, options: Options) -> Job:
    """The job of a source, or that of a server."""
    if source is not None:
        with discarded_on_error(source):
            return _open(source, options)
    of_no_use = options.changed().keys() - {"timeout", "socket", "cache", "job"}
    if of_no_use:
        raise ArgumentError(f"{', '.join(sorted(of_no_use))}: give a source, too: without one these arguments have no effect")
    return connect(options.socket, options.timeout, job=options.job)
