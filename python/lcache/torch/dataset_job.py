"""The job that a dataset reads: that of a source, which is opened, or that of a server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .._client.options import Options
from ..errors import ArgumentError, Error
from ..job import Job, connect
from ..opening import open_job

# Batch sizes that a new server's memory is sized for, one after the other: the dataset is made before its loader, which has the batch size.
_LIKELY_BATCH_SIZES = (256, 32, None)


def _open(source: Any, options: Options) -> Job:
    """lcache.open, with smaller likely batch sizes where memory is short."""
    if options.batch_size is not None or options.likely_batch_size is not None:
        return open_job(source, options)
    for size in _LIKELY_BATCH_SIZES:
        try:
            return open_job(source, replace(options, likely_batch_size=size))
        except Error as e:
            if size is None or "memory" not in str(e):
                raise  # a smaller batch size helps only against too little memory, which large samples may need
    raise AssertionError


def job_of(source: Any, options: Options) -> Job:
    """The job of a source, or that of a server."""
    if source is not None:
        return _open(source, options)
    of_no_use = options.changed().keys() - {"timeout", "socket", "cache", "job"}
    if of_no_use:
        raise ArgumentError(f"{', '.join(sorted(of_no_use))}: of use only with a source, and none is given")
    return connect(options.socket, options.timeout, job=options.job)
