"""The sampler of a job whose orders the server draws by importance."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import torch.utils.data

from ...errors import ArgumentError, Error
from ...job import Job
from . import ranks
from .tagged_batch import FirstOfBatch


class ImportanceSampler(torch.utils.data.Sampler[int]):
    """One rank's order of each epoch, as the server draws it. Call job.importance first. It works in any DataLoader over a dataset of the same job.

    rank and world_size default to those of torch.distributed, else to the job's. len() is the length of the current epoch until job.end_epoch or set_epoch
    ends it. After that it is the length of the next epoch, which the server then draws. The sampler counts epochs unless set_epoch sets them. An iteration
    requests the epoch's order, so call job.end_epoch and job.reevaluate before it.
    """

    def __init__(self, job: Job, rank: int | None = None, world_size: int | None = None) -> None:
        accepted = job.observer.accepted
        dist = torch.distributed
        if rank is None and dist.is_available() and dist.is_initialized():
            rank, world_size = dist.get_rank(), dist.get_world_size() if world_size is None else world_size
        self.job = job
        self.rank: int = job.rank if rank is None else rank
        self.num_replicas: int = accepted["world_size"]
        if world_size is not None and world_size != self.num_replicas:
            raise ArgumentError(f"ImportanceSampler with world_size={world_size}: job.importance has {self.num_replicas}; give both the same")
        if not 0 <= self.rank < self.num_replicas:
            raise ArgumentError(f"ImportanceSampler with rank={self.rank}: the rank must be 0 to {self.num_replicas - 1}")
        self.epoch = 0  # of the next iteration
        self._batch_size: int = accepted["batch_size"]
        self._reading: int | None = None  # the last epoch that was begun, until set_epoch
        self._lengths: dict[int, int] = {}  # by epoch

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration."""
        self.epoch, self._reading = epoch, None

    def __len__(self) -> int:
        reading = self._reading
        if reading is not None and self.job.observer.ended < reading:
            return self._lengths[reading]
        if self.epoch not in self._lengths:
            try:
                self._order(self.epoch)
            except ArgumentError:
                if reading is None:
                    raise
                return self._lengths[reading]  # the last epoch has ended
        return self._lengths[self.epoch]

    def __iter__(self) -> Iterator[int]:
        epoch = self.epoch
        order = self._order(epoch)
        self._reading, self.epoch = epoch, epoch + 1
        for number, at in enumerate(range(0, len(order), self._batch_size)):
            first, *others = order[at : at + self._batch_size].tolist()
            yield FirstOfBatch(first, (epoch, self.rank, number), 1 + len(others))
            yield from others

    def _order(self, epoch: int) -> array[int]:
        order = self.job.order(epoch, self.rank)
        self._lengths = {e: n for e, n in self._lengths.items() if e == self._reading} | {epoch: len(order)}
        return order

    def global_order(self, epoch: int) -> array[int]:
        """The order of all ranks in an epoch that was begun."""
        parts = [self.job.order(epoch, rank) for rank in range(self.num_replicas)]
        whole = array("I", bytes(4 * sum(map(len, parts))))
        for rank, part in enumerate(parts):
            whole[rank :: self.num_replicas] = part
        return whole

    def require_dataset(self, leaves: Sequence[Any], passes_on: bool) -> None:
        """Raises ArgumentError for datasets of another job. passes_on: no dataset in between changes indices."""
        if leaves and not passes_on:
            raise ArgumentError("an ImportanceSampler draws from all samples of its job: use the job's dataset itself, and neither a part nor a concatenation")
        if any((leaf.job.info.server, leaf.job.token) != (self.job.info.server, self.job.token) for leaf in leaves):
            raise ArgumentError("the ImportanceSampler and the dataset have different jobs: give the dataset job=, the job on which importance() was called")

    def __deepcopy__(self, memo: Any) -> Any:
        raise Error("copy an ImportanceSampler: its order is the server's, so it can't be copied; make another one")


def served_sampler(batches: Any) -> ImportanceSampler | None:
    """The ImportanceSampler below a batch sampler; None: it has another sampler."""
    return next((s for s in ranks.chain(batches) if isinstance(s, ImportanceSampler)), None)
