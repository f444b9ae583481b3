"""A batch: columns of its own, and samples that are views into shared memory.

The bytes stay unchanged as long as a view, a slice, an array or a tensor refers to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .errors import Error
from .protocol import Boundaries, Columns
from .session import Session


class Samples(Sequence[memoryview]):
    """Read-only memoryviews of bytes, one for each sample. Each access makes a view, without a copy."""

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

    def __iter__(self) -> Iterator[memoryview]:
        self._check()
        view = self._view
        for offset, length in zip(self._columns.offsets, self._columns.lengths):
            yield view[offset : offset + length]

    def _check(self) -> None:
        """Refuses access in a forked child: the parent may end the lease at any time."""
        if self._session.inherited:
            raise Error("this batch belongs to the parent process, a forked child has no lease on its bytes: get it again here")


class FirstParts(Sequence[memoryview]):
    """The first part of each sample."""

    __slots__ = ("_bounds", "_samples")

    def __init__(self, samples: Sequence[memoryview], bounds: list[Boundaries]) -> None:
        self._samples, self._bounds = samples, bounds

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        _, begin, end = self._bounds[i][0]
        return memoryview(self._samples[i])[begin:end]


class Parts(Sequence[dict[str, memoryview]]):
    """The parts of each sample as {extension: view}. In a dataset without parts the extension is ""."""

    __slots__ = ("_bounds", "_samples")

    def __init__(self, samples: Sequence[memoryview], bounds: list[Boundaries] | None) -> None:
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

    def __iter__(self) -> Iterator[dict[str, memoryview]]:
        if self._bounds is None:
            return ({"": view} for view in self._samples)
        return (self[i] for i in range(len(self)))


class Batch:
    """Samples in order. len() is their number; `indices` (u32) and `labels` (i32) are sequences of int with that length."""

    __slots__ = ("__weakref__", "_bounds", "_find_names", "_find_parts", "_lengths", "_names", "_samples", "indices", "labels")

    def __init__(
        self,
        columns: Columns,
        samples: Sequence[memoryview],
        find_names: Callable[[memoryview], list[str]],
        find_parts: Callable[[memoryview, Sequence[int]], list[Boundaries]] | None = None,
    ) -> None:
        """find_names(indices) and find_parts(indices, lengths) ask the server. find_parts is None where samples have no parts."""
        self.indices: memoryview = columns.indices
        self.labels: memoryview = columns.labels
        self._samples: Sequence[memoryview] | None = samples
        self._lengths = columns.lengths  # bytes
        self._find_names, self._find_parts = find_names, find_parts
        self._names: list[str] | None = None
        self._bounds: list[Boundaries] | None = None

    def __len__(self) -> int:
        return len(self.indices)

    def __repr__(self) -> str:
        return f"<lcache.Batch of {len(self)} samples>"

    @property
    def samples(self) -> Sequence[memoryview]:
        """Read-only memoryviews of bytes into shared memory (into private memory beyond the credits). Of a sample with parts, the first part.

        Raises Error after release(), and in a forked child of the process that got the batch.
        """
        whole = self._whole()
        bounds = self._boundaries()
        return whole if bounds is None else FirstParts(whole, bounds)

    @property
    def parts(self) -> Sequence[dict[str, memoryview]]:
        """parts[i] is {extension: view} of sample i. In a dataset without parts the extension is ""."""
        return Parts(self._whole(), self._boundaries())

    def _whole(self) -> Sequence[memoryview]:
        if self._samples is None:
            raise Error("this batch was released")
        return self._samples

    def _boundaries(self) -> list[Boundaries] | None:
        """The parts of each sample, requested from the server at the first use. None where samples have no parts."""
        if self._bounds is None and self._find_parts is not None:
            self._bounds = self._find_parts(self.indices, self._lengths)
        return self._bounds

    @property
    def names(self) -> list[str]:
        """The samples' names: paths below the source, requested from the server at the first use."""
        if self._names is None:
            self._names = self._find_names(self.indices)
        return self._names

    def release(self) -> None:
        """Drops the batch's own references. Views taken before stay valid. The lease ends with the last of them."""
        self._samples = None
