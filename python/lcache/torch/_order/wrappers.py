"""Translates a training dataset's indices to those of the lcache datasets below it, through torch's Subset and ConcatDataset.

Any other wrapper may change indices in any way. If it has the same length as the only dataset in it, the translation guesses that the wrapper passes
indices on, and the caller must check the guess. The same holds for an lcache dataset of a class with its own __getitem__ or __getitems__.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import types
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Union

import torch
from torch.utils.data import ConcatDataset, Subset

from ..._client.orders import Order
from . import frameworks
from .loader_job import Leaf

Batches = Union[Order, list[list[int]]]  # of an epoch; a list if an index is not a u32

_PIECE = 1 << 18  # indices translated at once
_LOOKED_AT, _ITEMS = 1000, 64  # the most objects that holds_dataset searches, and values of each of them


class _Found(NamedTuple):
    """Indices in a leaf, and their positions in the translated column, ascending. None: the whole column."""

    leaf: Leaf
    indices: torch.Tensor
    positions: torch.Tensor | None


class _Finder(NamedTuple):
    """Functions that find a dataset's indices in the leaves: for a single index, and for a column of int64."""

    one: Callable[[int], tuple[Leaf, int]]
    column: Callable[[torch.Tensor], list[_Found]]


class Translation:
    """The translation for one training dataset. `leaves` are the lcache datasets below it; empty if indices can't be translated."""

    def __init__(self, dataset: Any) -> None:
        self.leaves: list[Leaf] = []
        # Whether the training dataset's indices are the job's.
        self.direct = isinstance(dataset, Leaf) and dataset.lcache_kept is None and not dataset.lcache_overrides_access()
        self.guessed = False  # an unknown wrapper, or a subclass's own access method, is assumed to pass indices on
        self._find = self._finder(dataset)
        if self._find is None:
            self.leaves = []

    def parts(self, indices: Sequence[int]) -> dict[str, list[int]]:
        """A batch's indices in each leaf, by the leaf's id."""
        if self.direct:
            return {self.leaves[0].lcache_id: list(indices)}
        parts: dict[str, list[int]] = {leaf.lcache_id: [] for leaf in self.leaves}
        assert self._find is not None
        for i in indices:
            leaf, index = self._find.one(i)
            parts[leaf.lcache_id].append(index)
        return parts

    def part_orders(self, batches: Batches) -> dict[str, Batches]:
        """An epoch's batches in each leaf, by the leaf's id. Raises an error for an index that a dataset lacks."""
        if self.direct:
            return {self.leaves[0].lcache_id: batches}
        if isinstance(batches, Order):
            return self._part_columns(batches)
        parts = [self.parts(batch) for batch in batches]
        return {leaf.lcache_id: [part[leaf.lcache_id] for part in parts] for leaf in self.leaves}

    def _part_columns(self, order: Order) -> dict[str, Batches]:
        """part_orders for columns. It works in pieces, because torch's index arithmetic takes many times the memory of its input."""
        assert self._find is not None
        flats, sizes = {leaf: array("I") for leaf in self.leaves}, {leaf: array("I") for leaf in self.leaves}
        first, at = 0, 0  # a batch, and its place in the order
        while first < len(order):
            last = max(first + 1, bisect.bisect_right(order.ends, at + _PIECE, first))
            piece, counts = order.flat[at : order.ends[last - 1]], order.sizes[first:last]
            ends = torch.cat([torch.zeros(1, dtype=torch.int64), _int64(counts).cumsum(0)])
            found = self._find.column(_int64(piece)) if len(piece) else []
            for leaf in self.leaves:
                indices, positions = _joined([f for f in found if f.leaf is leaf], len(piece))
                flats[leaf] += _u32(indices)
                sizes[leaf] += counts if positions is None else _u32(torch.searchsorted(positions, ends).diff())
            first, at = last, at + len(piece)
        return {leaf.lcache_id: Order(sizes[leaf], flats[leaf]) for leaf in self.leaves}

    def _finder(self, dataset: Any) -> _Finder | None:
        """The finder of a dataset; None: unknown. Adds the dataset's leaves to self.leaves."""
        if isinstance(dataset, Leaf):
            if dataset.lcache_overrides_access():
                if not _is_as_long(dataset, dataset.job.samples if dataset.lcache_kept is None else len(dataset.lcache_kept)):
                    return None
                self.guessed = True
            if dataset not in self.leaves:
                self.leaves.append(dataset)
            return _in_leaf(dataset)
        if type(dataset) is Subset:
            below = self._finder(dataset.dataset)
            return None if below is None else _in_subset(dataset.indices, below)
        if type(dataset) is ConcatDataset:
            found = [self._finder(part) for part in dataset.datasets]
            finders = [find for find in found if find is not None]
            return None if len(finders) < len(found) else _concatenated(finders, dataset.cumulative_sizes)
        return self._guess(dataset)

    def _guess(self, wrapper: Any) -> _Finder | None:
        held: list[Any] = [v for v in getattr(wrapper, "__dict__", {}).values() if isinstance(v, (Leaf, Subset, ConcatDataset))]
        if len(held) != 1 or not _is_as_long(wrapper, len(held[0])):
            return None
        self.guessed = True
        return self._finder(held[0])


def _is_as_long(dataset: Any, length: int) -> bool:
    try:
        return len(dataset) == length
    except (TypeError, NotImplementedError):
        return False


def _in_leaf(leaf: Leaf) -> _Finder:
    """The finder of an lcache dataset, which may keep only some of its job's samples."""
    whole = leaf.job.samples
    found = _Finder(lambda i: (leaf, i if i >= 0 else i + whole), lambda column: [_Found(leaf, torch.where(column < 0, column + whole, column), None)])
    return found if leaf.lcache_kept is None else _in_subset(leaf.lcache_kept, found)


def _in_subset(indices: Any, below: _Finder) -> _Finder:
    @functools.cache
    def table() -> torch.Tensor:
        if isinstance(indices, torch.Tensor):
            return indices.flatten()
        if isinstance(indices, array):
            return torch.frombuffer(indices, dtype=torch.int32)
        values = indices.tolist() if hasattr(indices, "tolist") else indices
        return torch.frombuffer(array("i", values), dtype=torch.int32)

    def column(asked: torch.Tensor) -> list[_Found]:
        if not isinstance(indices, range):
            return below.column(table()[asked].to(torch.int64))
        if int(asked.max()) >= len(indices):
            raise IndexError(f"index {int(asked.max())} of {len(indices)}")
        return below.column(asked * indices.step + indices.start)

    return _Finder(lambda i: below.one(int(indices[i])), column)


def _concatenated(finders: Sequence[_Finder], ends: Sequence[int]) -> _Finder:
    """The finder of concatenated datasets. ends has the end index of each."""
    total = ends[-1]

    def one(i: int) -> tuple[Leaf, int]:
        i = i if i >= 0 else i + total
        part = bisect.bisect_right(ends, i)
        return finders[part].one(i - (ends[part - 1] if part else 0))

    def column(asked: torch.Tensor) -> list[_Found]:
        asked = torch.where(asked < 0, asked + total, asked)
        if int(asked.max()) >= total or int(asked.min()) < 0:
            raise IndexError(f"index {int(asked.max())} of {total}")
        part = torch.bucketize(asked, torch.tensor(ends), right=True)
        found = []
        for number, finder in enumerate(finders):
            positions = (part == number).nonzero().flatten()
            if len(positions):
                for leaf, indices, within in finder.column(asked[positions] - (ends[number - 1] if number else 0)):
                    found.append(_Found(leaf, indices, positions if within is None else positions[within]))
        return found

    return _Finder(one, column)


def _joined(found: list[_Found], whole: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The indices in one leaf, and their positions, ascending. None as the positions: every index is in this leaf."""
    if len(found) == 1 and found[0].positions is None:
        return found[0].indices, None
    if not found:
        return torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
    positions, places = torch.cat([torch.arange(whole) if f.positions is None else f.positions for f in found]).sort()
    return torch.cat([f.indices for f in found])[places], positions


def _int64(column: array[int] | memoryview) -> torch.Tensor:
    return torch.frombuffer(column, dtype=torch.int32).to(torch.int64)


def _u32(numbers: torch.Tensor) -> array[int]:
    column = array("I", bytes(4)) * len(numbers)
    if len(numbers):
        torch.frombuffer(column, dtype=torch.int32).copy_(numbers)
    return column


def holds_dataset(dataset: Any) -> bool:
    """Whether a dataset contains an lcache dataset: in its attributes, in their attributes, or in the first items of lists, tuples and dicts."""
    found, seen = [dataset], {id(dataset)}
    for holder in found:
        if isinstance(holder, Leaf):
            return True
        for held in _held_by(holder):
            if id(held) not in seen and len(found) < _LOOKED_AT:
                seen.add(id(held))
                found.append(held)
    return False


def _held_by(holder: Any) -> Iterable[Any]:
    if isinstance(holder, (type, types.ModuleType, torch.Tensor)):
        return ()
    values = holder if isinstance(holder, (list, tuple)) else (holder if isinstance(holder, dict) else getattr(holder, "__dict__", {})).values()
    return itertools.islice(values, _ITEMS)


def dataset_of(sampler: Any) -> Any:
    """The dataset that a sampler, or one that it wraps, was made for. None: unknown."""
    for _ in range(8):
        for name in ("data_source", "dataset"):
            found = getattr(sampler, name, None)
            inner = frameworks.sampler_in_dataset(found)
            if inner is not None:
                break
            if found is not None and hasattr(found, "__getitem__"):
                return found
        else:
            inner = frameworks.wrapped_sampler(sampler)
        if inner is None:
            return None
        sampler = inner
    return None
