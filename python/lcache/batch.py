"""A batch: private columns, and samples that are views into shared memory.

The bytes stay unchanged as long as a view, a slice, an array or a tensor refers to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import add, sub
from typing import Any

from ._client.memory import keep_freed
from ._client.parts import AlikeParts, BatchParts, all_parts, first_parts
from ._client.protocol import Columns
from ._client.session import Session
from .arrays import Layout, OtherSize
from .errors import ArgumentError, Error, SampleError


class Samples(Sequence[memoryview]):
    """Read-only memoryviews of bytes, one for each sample. Each access makes a view, without a copy."""

    __slots__ = ("_columns", "_view", "session")

    def __init__(self, view: memoryview, columns: Columns, session: Session) -> None:
        self._view, self._columns, self.session = view, columns, session

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

    def within(self, begins: Sequence[int], ends: Sequence[int]) -> list[memoryview]:
        """The bytes from begins[i] to ends[i] of each sample i."""
        self._check()
        view = self._view
        return [view[offset + begin : offset + end] for offset, begin, end in zip(self._columns.offsets, begins, ends)]

    def copies(self) -> list[bytes]:
        """Private copies of all samples."""
        self._check()
        view = self._view
        return [bytes(view[offset : offset + length]) for offset, length in zip(self._columns.offsets, self._columns.lengths)]

    def gathered(self, layout: Layout, begins: Sequence[int] | None) -> Any:
        """A new array of all samples. begins: only their parts, which begin at those offsets within the samples."""
        self._check()
        offsets = self._columns.offsets
        return layout.gathered(self._view, offsets if begins is None else list(map(add, offsets, begins)))

    def _check(self) -> None:
        """Refuses access in a forked child: the parent may end the lease at any time."""
        if self.session.inherited:
            raise Error("read a batch in a forked child: the lease on its bytes is the parent's; get the batch again here")


class FirstParts(Sequence[memoryview]):
    """The first part of each sample."""

    __slots__ = ("_bounds", "_samples")

    def __init__(self, samples: Sequence[memoryview], bounds: BatchParts) -> None:
        self._samples, self._bounds = samples, bounds

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        _, begin, end = self._bounds[i][0]
        return memoryview(self._samples[i])[begin:end]

    def __iter__(self) -> Iterator[memoryview]:
        for whole, (begin, end) in zip(self._samples, first_parts(self._bounds)):
            yield whole[begin:end]


class Parts(Sequence[dict[str, memoryview]]):
    """The parts of each sample as {extension: view}. In a dataset without parts the extension is ""."""

    __slots__ = ("_bounds", "_samples")

    def __init__(self, samples: Sequence[memoryview], bounds: BatchParts | None) -> None:
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
        return ({ext: whole[begin:end] for ext, begin, end in parts} for whole, parts in zip(self._samples, self._bounds))


class Batch:
    """The samples of a batch, in order. Iteration yields their bytes. `indices` (u32), `labels` (i32) and `lengths` (bytes, all parts) are sequences of int."""

    __slots__ = ("__weakref__", "_bounds", "_find_names", "_find_parts", "_names", "_parts_said", "_requested", "_samples", "indices", "labels", "lengths")

    def __init__(
        self,
        columns: Columns,
        samples: Sequence[memoryview],
        find_names: Callable[[memoryview], list[str]],
        find_parts: Callable[[memoryview, Sequence[int]], BatchParts] | None = None,
    ) -> None:
        """find_names(indices) and find_parts(indices, lengths) request from the server. find_parts is None if samples have no parts."""
        self.indices: memoryview = columns.indices
        self.labels: memoryview = columns.labels
        self._requested = columns.requested
        self._samples: Sequence[memoryview] | None = samples
        self.lengths: Sequence[int] = columns.lengths
        self._find_names, self._find_parts = find_names, find_parts
        self._names: list[str] | None = None
        self._bounds: BatchParts | None = None
        self._parts_said = columns.parts

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def requested(self) -> memoryview:
        """The requested indices. They differ from `indices` only if the job allows substitutes: sample i was then served in place of requested[i]."""
        return self.indices if self._requested is None else self._requested

    def __iter__(self) -> Iterator[memoryview]:
        return iter(self.samples)

    def __repr__(self) -> str:
        return f"<lcache.Batch of {len(self)} samples>"

    @property
    def samples(self) -> Sequence[memoryview]:
        """Read-only memoryviews of bytes into shared memory, or into private memory beyond the credits. For a sample with parts it is the first part.

        Raises Error after release(), and in a forked child of the process that got the batch.
        """
        whole = self._whole()
        bounds = self._boundaries()
        return whole if bounds is None else FirstParts(whole, bounds)

    @property
    def parts(self) -> Sequence[dict[str, memoryview]]:
        """parts[i] is {extension: view} of sample i. In a dataset without parts the extension is ""."""
        return Parts(self._whole(), self._boundaries())

    def views_of(self, part: str) -> list[memoryview | None]:
        """A part of each sample; None: the sample lacks it."""
        whole, bounds = self._whole(), self._boundaries()
        if isinstance(whole, Samples) and isinstance(bounds, AlikeParts) and (columns := bounds.part(part)) is not None:
            return [*whole.within(*columns)]
        return [parts.get(part) for parts in Parts(whole, bounds)]

    def _whole(self) -> Sequence[memoryview]:
        if self._samples is None:
            raise Error("read a batch that was released: take its views before release(), or get it again")
        return self._samples

    def _boundaries(self) -> BatchParts | None:
        """The parts of each sample; None if samples have no parts. Requested from the server at the first use, unless they came with the batch."""
        if self._bounds is None and self._find_parts is not None:
            if self._parts_said is None:
                self._bounds = self._find_parts(self.indices, self.lengths)
            else:
                self._bounds = all_parts(self._parts_said, self.lengths)
                self._parts_said = None
        return self._bounds

    @property
    def names(self) -> list[str]:
        """The samples' names: paths below the source, requested from the server at the first use."""
        if self._names is None:
            self._names = self._find_names(self.indices)
        return self._names

    @classmethod
    def merged(cls, batches: Sequence[Batch]) -> Batch:
        """The samples of several batches of one job as one batch of private copies."""
        columns = Columns(
            0, 0, (), tuple(n for batch in batches for n in batch.lengths),
            memoryview(b"".join(batch.indices for batch in batches)).cast("I"), memoryview(b"".join(batch.labels for batch in batches)).cast("i"),
            memoryview(b"".join(batch.requested for batch in batches)).cast("I"),
        )
        copies = [memoryview(bytes(view)) for batch in batches for view in batch._whole()]
        return cls(columns, copies, batches[0]._find_names, batches[0]._find_parts)

    def copies(self) -> list[bytes]:
        """Private copies of the samples. The batch is released."""
        samples = self.samples
        keep_freed(sum(self.lengths))
        copied = samples.copies() if isinstance(samples, Samples) else list(map(bytes, samples))
        self.release()
        return copied

    def array(self, dtype: Any, shape: int | Sequence[int], part: str | None = None, release: bool = True) -> Any:
        """The samples as one numpy array of shape (len(batch), *shape), in memory of its own. Needs numpy.

        part is the extension of the part to take; default: the first one. The batch is released unless release is False, which allows further
        arrays, such as those of other parts. Raises SampleError, with the sample's name, if a sample has another number of bytes or lacks the
        part, and ArgumentError for an invalid dtype or shape.
        """
        layout = Layout(dtype, shape)
        whole, bounds = self._whole(), self._boundaries()
        begins: Sequence[int] | None = None
        lengths = self.lengths
        if bounds is not None or part:
            begins, lengths = self._part(bounds, part)
        try:
            layout.require(lengths)
        except OtherSize as e:
            raise self._unfit(e.place, str(e)) from None
        if isinstance(whole, Samples):
            array = whole.gathered(layout, begins)
        elif begins is None:
            array = layout.joined(whole)
        else:
            array = layout.joined([view[begin : begin + layout.bytes] for view, begin in zip(whole, begins)])
        if release:
            self.release()
        return array

    def _part(self, bounds: BatchParts | None, part: str | None) -> tuple[Sequence[int], Sequence[int]]:
        """(begins, lengths) of a part in each sample, in bytes."""
        if bounds is None:
            raise ArgumentError(f"part={part!r}: the samples of this dataset have no parts")
        if isinstance(bounds, AlikeParts) and (columns := bounds.part(part)) is not None:
            return columns[0], list(map(sub, columns[1], columns[0]))
        begins, lengths = [], []
        for place, parts in enumerate(bounds):
            found = next(((begin, end) for ext, begin, end in parts if part is None or ext == part), None)
            if found is None:
                raise self._unfit(place, f"has no part {part!r}, only {', '.join(repr(ext) for ext, _, _ in parts)}")
            begins.append(found[0])
            lengths.append(found[1] - found[0])
        return begins, lengths

    def _unfit(self, place: int, why: str) -> SampleError:
        """The error for a sample that does not fit its array."""
        try:
            name: str | None = self.names[place]
        except Error:
            name = None  # the error has the index
        which = f"sample {self.indices[place]}" if name is None else f"sample {self.indices[place]}, {name!r},"
        return SampleError(f"{which} {why}", name, why)

    def release(self) -> None:
        """Drops the batch's own references. Views taken before stay valid, and the lease ends with the last of them."""
        session = self._samples.session if isinstance(self._samples, Samples) else None
        self._samples = None
        if session is not None:
            session.settle()
