"""Which of a process's loaders says the order of a server's rank: one at a time, as long as it is used. The others are served by index.

The first that asks holds it. It gives way when it is collected, when its job was closed, when its server has ended and another one is
there, and when it was left: when another loader begins an epoch and the holder has neither begun one nor yielded a batch since that other one
began its last. It also gives way to one that reads more samples, and until its training loop asks for a second batch. So of loaders that are
used in turn, for training and for validation, one keeps it, whichever began; and a loader that was made anew has it in its second epoch at the latest.
"""

from __future__ import annotations

import gc
import itertools
import os
import weakref
from collections.abc import Sequence

from ..errors import Error
from ..job import Job
from ..protocol import NOWHERE

_held: weakref.WeakValueDictionary[tuple[str, int], Claim] = weakref.WeakValueDictionary()  # by socket and rank
_clock = itertools.count(1)  # of what loaders do, in this process


class Claim:
    def __init__(self) -> None:
        self.holds = False
        self.settled = False  # its training loop has asked for more than one batch; until then it gives way to any other
        self._jobs: Sequence[Job] = ()
        self._samples = 0  # of an epoch
        self._begun = self._before = 0  # when the last epoch was begun, and the one before it
        self._moved = 0  # when an epoch was begun or a batch yielded
        self._searched = False

    def begin(self) -> None:
        """An epoch begins."""
        self._before, self._begun = self._begun, next(_clock)
        self._moved = self._begun

    def yielded(self) -> None:
        self._moved = next(_clock)

    def take(self, jobs: Sequence[Job], rank: int, samples: int) -> bool:
        """Holds the rank at all the jobs' servers from now on, for epochs of so many samples. False, and nothing has changed, if another
        loader holds it at one of them."""
        self._samples = samples
        keys = {(job.socket, rank): job for job in jobs}
        if self.holds and all(_held.get(key) is self for key in keys):
            return True
        if not all(self._free(key, job) for key, job in keys.items()):
            if self._searched:
                return False
            self._searched = True
            gc.collect()  # a loader in a cycle of references, which nobody can use any more
            if not all(self._free(key, job) for key, job in keys.items()):
                return False
        for key, job in keys.items():
            other = _held.get(key)
            if other is not None and other is not self:
                other._lose(key)
            job.forget_orders(NOWHERE, rank)  # what others pushed is not pushed again to a server that was started anew
            _held[key] = self
        self.holds, self._jobs = True, jobs
        return True

    def _free(self, key: tuple[str, int], job: Job) -> bool:
        other = _held.get(key)
        if other is None or other is self or not other.holds:
            return True
        if not other.settled or other._moved < self._before or other._samples < self._samples:
            return True
        theirs = next(j for j in other._jobs if j.socket == key[0])
        if theirs is job:
            return False
        return theirs.closed or not self._before and _is_newer(job, theirs)

    def _lose(self, key: tuple[str, int]) -> None:
        """Another loader says the order of this rank from now on; at other servers nobody does."""
        self.holds = False
        for job in self._jobs:
            job.forget_orders(NOWHERE, key[1])


def _is_newer(mine: Job, theirs: Job) -> bool:
    """Whether the server of theirs has ended, and mine has another one."""
    if mine.info.server == theirs.info.server:
        return False
    try:
        mine.stats()  # so that mine is the server that runs now
    except Error:
        return False  # whoever pushes the order will say so
    return mine.info.server != theirs.info.server


os.register_at_fork(after_in_child=_held.clear)  # a child's loaders are its own
