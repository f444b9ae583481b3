"""The job of one loader: a token that all its processes send to the server, so that two loaders over one dataset are two jobs.

The token consists of the id of the run and the loader's ordinal in its process. The id of the run is that of the launcher, so that all ranks have the same
token; without a launcher it is that of the process that opened the dataset. Workers get the token with each batch. If the program named a job (job=…), all
loaders of its dataset are that job. A server of an older release has one job for all.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import weakref
from array import array
from collections.abc import Sequence
from typing import NamedTuple

import torch.distributed

from ..._client.environment import launched_run
from ...errors import ArgumentError
from ...job import Job

_log = logging.getLogger("lcache")

_LONGEST = 100  # bytes of a run's id in a token, which has at most 128

_ordinals = itertools.count()  # of the loaders that have begun in this process
_begun: weakref.WeakValueDictionary[str, LoaderJob] = weakref.WeakValueDictionary()  # by token, the loaders of this process
_made: set[str] = set()  # tokens that were made in this process


class LeftOut(NamedTuple):
    """The samples that bad= leaves out of a dataset."""

    samples: int
    digest: str  # SHA-256 of their sorted names; "": there are none


class Leaf:
    """The interface of an lcache dataset. lcache.torch.Dataset derives from this class, so that no module here imports that one."""

    job: Job
    lcache_id: str  # the same in every copy, such as those in workers
    lcache_kept: array[int] | None  # the job's indices of the dataset's samples; None: all of them
    lcache_left_out = LeftOut(0, "")
    opener: str  # the process that opened the dataset, the same in every copy

    def lcache_overrides_access(self) -> bool:
        """Whether the class has its own __getitem__ or __getitems__, which may request samples of other indices."""
        raise NotImplementedError


class LoaderJob:
    """Ends with its loader: its connections are then closed, and the server drops the job a while later."""

    def __init__(self) -> None:
        self.token: str | None = None  # None: not yet begun, or the job is that of the dataset
        self._jobs: dict[str, Job] | None = None  # by the id of an lcache dataset; None: not yet begun

    def begin(self, leaves: Sequence[Leaf]) -> None:
        """Names the job, once, at the loader's first iteration. Connects, so that the server keeps the job as long as the loader exists."""
        if self._jobs is not None:
            return
        token = f"{_run_of(leaves[0])}/{next(_ordinals)}"
        jobs = {leaf.lcache_id: leaf.job.named(token) for leaf in leaves if _has_none(leaf.job)}
        try:
            for job in jobs.values():
                job.attach()
        except ArgumentError as e:
            _log.info("a loader has no job of its own; its requests count for the server's job: %s", e)
            jobs = {}
        self._jobs = jobs
        if jobs:
            self.token = token
            _made.add(token)
            _begun[token] = self

    @property
    def begun(self) -> bool:
        """Whether the loader was iterated over."""
        return self._jobs is not None

    def of(self, leaf: Leaf) -> Job:
        """The job at a dataset's server."""
        return leaf.job if leaf.job.closed else (self._jobs or {}).get(leaf.lcache_id, leaf.job)


class BorrowedJob:
    """The job of a dataset's copy in a process that gets batches from a loader, such as a worker."""

    def __init__(self) -> None:
        self._job: Job | None = None  # of the last token

    def of(self, leaf: Leaf, token: str) -> Job | None:
        """The job of a batch with that token; None if its loader was in this process and is gone."""
        if leaf.job.token is not None or leaf.job.closed:
            return leaf.job
        loader = _begun.get(token)
        if loader is not None:
            return loader.of(leaf)
        if token in _made:
            return None
        job = self._job
        if job is None or job.token != token or job.closed:
            job = self._job = leaf.job.named(token)
        return job


def _has_none(job: Job) -> bool:
    """Whether a dataset's job has no name, and the server takes names: then each loader names its own job."""
    return job.token is None and not job.closed and job.has_named_jobs


def _run_of(leaf: Leaf) -> str:
    dist = torch.distributed
    several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    run = launched_run(several=several) or leaf.opener
    text = run.encode(errors="surrogateescape")
    return run if len(text) <= _LONGEST else hashlib.sha256(text).hexdigest()


def _after_fork() -> None:
    """A child may be a worker: batches with its parent's tokens do not belong to the child's loaders."""
    _begun.clear()
    _made.clear()


os.register_at_fork(after_in_child=_after_fork)
