"""Decides which of a process's loaders owns a rank's order in a job. The owner pushes its order; the other loaders are served by index.

Only loaders that share a job compete: those of a dataset whose job the program named, and those of an older server that has one job for all.

The first loader that requests the order becomes its owner. Another loader takes it over in these cases:
- the owner was garbage-collected, its job was closed, or its server has ended and another one runs;
- the owner was abandoned: the other loader begins an epoch, and the owner has neither begun one nor yielded a batch since that loader began its last epoch;
- the other loader reads more samples;
- the owner's training loop has not yet requested a second batch.
So if a program alternates between a training loader and a validation loader, the one that reads more samples keeps the order, whichever came first. A loader
that replaces another one owns the order in its second epoch at the latest.
"""

from __future__ import annotations

import gc
import itertools
import os
import threading
import weakref
from collections.abc import Sequence
from typing import Optional

from ..._client.protocol import NOWHERE
from ..._client.releases import when_gone
from ...errors import Error
from ...job import Job

_Key = tuple[str, Optional[str], int]  # a rank of a job: socket, token, rank

_owners: weakref.WeakValueDictionary[_Key, Ownership] = weakref.WeakValueDictionary()
_clock = itertools.count(1)  # counts the actions of loaders in this process


class Ownership:
    """The ownership of one loader."""

    def __init__(self) -> None:
        self.held = False
        self.ended = threading.Event()  # this loader has lost the order, or is gone: its pushes under way are obsolete
        when_gone(self, self.ended.set)
        self.settled = False  # the training loop has requested a second batch; until then any other loader takes over
        self._jobs: Sequence[Job] = ()
        self._samples = 0  # in an epoch
        # Times of _clock:
        self._begun = self._begun_before = 0  # the last epoch began, and the epoch before it
        self._active = 0  # an epoch began, or a batch was yielded
        self._collected = False  # gc.collect() was called once, for loaders in reference cycles

    def begin(self) -> None:
        """Notes that an epoch begins."""
        self._begun_before, self._begun = self._begun, next(_clock)
        self._active = self._begun

    def note_batch(self) -> None:
        """Notes that a batch was yielded."""
        self._active = next(_clock)

    def take(self, jobs: Sequence[Job], rank: int, samples: int) -> bool:
        """Makes this loader the owner of the rank's order in all these jobs, for epochs with that number of samples.

        If another loader stays the owner in one of them, it changes nothing and returns False.
        """
        self._samples = samples
        keys = {_key(job, rank): job for job in jobs}
        if self.held and all(_owners.get(key) is self for key in keys):
            return True
        if not all(self._is_free(key, job) for key, job in keys.items()):
            if self._collected:
                return False
            self._collected = True
            gc.collect()  # the owner may be a dropped loader in a reference cycle
            if not all(self._is_free(key, job) for key, job in keys.items()):
                return False
        for key, job in keys.items():
            owner = _owners.get(key)
            if owner is not None and owner is not self:
                owner._lose(key)
            job.forget_orders(NOWHERE, rank)  # another loader's orders are not pushed to a restarted server
            _owners[key] = self
        if self.ended.is_set():
            self.ended = threading.Event()
            when_gone(self, self.ended.set)
        self.held, self._jobs = True, jobs
        return True

    def _is_free(self, key: _Key, job: Job) -> bool:
        """Whether this loader may take the order over in one job."""
        owner = _owners.get(key)
        if owner is None or owner is self or not owner.held:
            return True
        if not owner.settled or owner._active < self._begun_before or owner._samples < self._samples:
            return True
        theirs = next(j for j in owner._jobs if _key(j, key[2]) == key)
        if theirs is job:
            return False
        return theirs.closed or (not self._begun_before and _has_newer_server(job, theirs))

    def _lose(self, key: _Key) -> None:
        """From now on another loader owns the order in this job. In this loader's other jobs the order has no owner."""
        self.held = False
        self.ended.set()
        for job in self._jobs:
            job.forget_orders(NOWHERE, key[2])


def _key(job: Job, rank: int) -> _Key:
    return job.socket, job.token if job.has_named_jobs else None, rank


def _has_newer_server(mine: Job, theirs: Job) -> bool:
    """Whether the server of `theirs` has ended, and `mine` uses another run."""
    if mine.info.server == theirs.info.server:
        return False
    try:
        mine.stats()  # connects mine to the server that runs now
    except Error:
        return False  # pushing the order will report the error
    return mine.info.server != theirs.info.server


os.register_at_fork(after_in_child=_owners.clear)  # a forked child has its own loaders
