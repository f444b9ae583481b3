"""A batch: columns of its own, and samples that are views into shared memory.

The bytes stay as they were for as long as anything refers to them, be it a view, a slice, an array or a tensor made from one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

from .errors import Error
from .protocol import Boundaries, Columns
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


class Firsts(Sequence):
    """The first part of each sample."""

    __slots__ = ("_bounds", "_samples")

    def __init__(self, samples: Sequence, bounds: list[Boundaries]) -> None:
        self._samples, self._bounds = samples, bounds

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        _, begin, end = self._bounds[i][0]
        return memoryview(self._samples[i])[begin:end]


class Parts(Sequence):
    """For each sample a dict of its parts: {extension: view}. In a dataset without parts the extension is ""."""

    __slots__ = ("_bounds", "_samples")

    def __init__(self, samples: Sequence, bounds: list[Boundaries] | None) -> None:
        self._samples, self._bounds = samples, bounds

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        if self._bounds is None:
            return {"": self._samples[i]}
        whole = memoryview(self._samples[i])
        return {ext: whole[begin:end] for ext, begin, end in self._bounds[i]}

    def __iter__(self) -> Any:
        if self._bounds is None:
            return ({"": view} for view in self._samples)
        return (self[i] for i in range(len(self)))


class Batch:
    """Samples in order. `indices` and `labels` are sequences of int; len() is the number of samples."""

    __slots__ = ("__weakref__", "_bounds", "_lengths", "_lookup", "_names", "_samples", "_split", "indices", "labels")

    def __init__(
        self,
        columns: Columns,
        samples: Sequence,
        lookup: Callable[[memoryview], list[str]],
        split: Callable[[memoryview, Sequence[int]], list[Boundaries]] | None = None,
    ) -> None:
        """split gives the parts of samples of these indices and lengths; None: there are none."""
        self.indices: memoryview = columns.indices
        self.labels: memoryview = columns.labels
        self._samples: Sequence | None = samples
        self._lengths = columns.lengths
        self._lookup, self._split = lookup, split
        self._names: list[str] | None = None
        self._bounds: list[Boundaries] | None = None

    def __len__(self) -> int:
        return len(self.indices)

    def __repr__(self) -> str:
        return f"<lcache.Batch of {len(self)} samples>"

    @property
    def samples(self) -> Sequence:
        """Read-only memoryviews into shared memory (into private memory beyond the credits); of samples with parts, the first part."""
        whole = self._whole()
        bounds = self._boundaries()
        return whole if bounds is None else Firsts(whole, bounds)

    @property
    def parts(self) -> Sequence:
        """parts[i] is {extension: view} of sample i."""
        return Parts(self._whole(), self._boundaries())

    def _whole(self) -> Sequence:
        if self._samples is None:
            raise Error("this batch was released")
        return self._samples

    def _boundaries(self) -> list[Boundaries] | None:
        """Asked of the server at the first use."""
        if self._bounds is None and self._split is not None:
            self._bounds = self._split(self.indices, self._lengths)
        return self._bounds

    @property
    def names(self) -> list[str]:
        """The samples' names, asked of the server at the first use."""
        if self._names is None:
            self._names = self._lookup(self.indices)
        return self._names

    def release(self) -> None:
        """Drops the batch's own references. Views that were taken stay valid; the lease ends with the last one."""
        self._samples = None
