"""A batch: columns of its own, and samples that are views into shared memory.

The bytes stay as they were for as long as anything refers to them, be it a view, a slice, an array or a tensor made from one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

from .errors import Error
from .protocol import Columns
from .session import Session


class Samples(Sequence):
    """Read-only memoryviews, one for each sample, made when asked for and without copying."""

    __slots__ = ("_columns", "_session", "_view")

    def __init__(self, view: memoryview, columns: Columns, session: Session) -> None:
        self._view, self._columns, self._session = view, columns, session

    def __len__(self) -> int:
        return len(self._columns.lengths)

    def __getitem__(self, i: Any) -> Any:
        self._check()
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        offset = self._columns.offsets[i]
        return self._view[offset : offset + self._columns.lengths[i]]

    def __iter__(self) -> Any:
        self._check()
        view = self._view
        for offset, length in zip(self._columns.offsets, self._columns.lengths):
            yield view[offset : offset + length]

    def _check(self) -> None:
        if self._session.foreign:
            raise Error("this batch belongs to the parent process, a forked child has no lease on its bytes: get it again here")


class Parts(Sequence):
    """For each sample a dict of its parts: {extension: view}. A sample of one part has the extension ""."""

    __slots__ = ("_samples",)

    def __init__(self, samples: Sequence) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [{"": view} for view in self._samples[i]]
        return {"": self._samples[i]}


class Batch:
    """Samples in order. `indices` and `labels` are sequences of int; len() is the number of samples."""

    __slots__ = ("__weakref__", "_lookup", "_names", "_samples", "indices", "labels")

    def __init__(self, columns: Columns, samples: Sequence, lookup: Callable[[memoryview], list[str]]) -> None:
        self.indices: memoryview = columns.indices
        self.labels: memoryview = columns.labels
        self._samples: Sequence | None = samples
        self._lookup = lookup
        self._names: list[str] | None = None

    def __len__(self) -> int:
        return len(self.indices)

    def __repr__(self) -> str:
        return f"<lcache.Batch of {len(self)} samples>"

    @property
    def samples(self) -> Sequence:
        """Read-only memoryviews into shared memory (into private memory beyond the credits)."""
        if self._samples is None:
            raise Error("this batch was released")
        return self._samples

    @property
    def parts(self) -> Sequence:
        """parts[i] is {extension: view} of sample i."""
        return Parts(self.samples)

    @property
    def names(self) -> list[str]:
        """The samples' names, asked of the server at the first use."""
        if self._names is None:
            self._names = self._lookup(self.indices)
        return self._names

    def release(self) -> None:
        """Drops the batch's own references. Views that were taken stay valid; the lease ends with the last one."""
        self._samples = None
