"""Translation of a training dataset's indices to those of the lcache datasets below it, through torch's Subset and ConcatDataset.

A wrapper of another kind may change indices in any way. If it is as long as the one dataset that it holds, the translation guesses that the wrapper
passes indices on, and the caller has to check the guess.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.data import ConcatDataset, Subset

from . import frameworks
from .dataset import Dataset

_Find = Callable[[int], tuple[Dataset, int]]  # index → (lcache dataset, index in it)


class Translation:
    """The translation for one training dataset. `leaves` are the lcache datasets below it; empty if indices can't be translated."""

    def __init__(self, dataset: Any) -> None:
        self.leaves: list[Dataset] = []
        self.direct = isinstance(dataset, Dataset)  # the training dataset is itself the lcache dataset
        self.guessed = False  # an unknown wrapper is assumed to pass indices on
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
            leaf, index = self._find(i)
            parts[leaf.lcache_id].append(index)
        return parts

    def _finder(self, dataset: Any) -> _Find | None:
        """Finds a dataset's index in its leaf. None if that is unknown. Adds the leaf to leaves."""
        if isinstance(dataset, Dataset):
            leaf = dataset
            if leaf not in self.leaves:
                self.leaves.append(leaf)
            size = len(leaf)
            return lambda i: (leaf, i if i >= 0 else i + size)
        if type(dataset) is Subset:
            below = self._finder(dataset.dataset)
            indices = dataset.indices
            return None if below is None else lambda i: below(int(indices[i]))
        if type(dataset) is ConcatDataset:
            found = [self._finder(part) for part in dataset.datasets]
            finders = [find for find in found if find is not None]
            return None if len(finders) < len(found) else _concatenated(finders, dataset.cumulative_sizes)
        return self._guess(dataset)

    def _guess(self, wrapper: Any) -> _Find | None:
        held = [v for v in getattr(wrapper, "__dict__", {}).values() if isinstance(v, (Dataset, Subset, ConcatDataset))]
        try:
            if len(held) != 1 or len(wrapper) != len(held[0]):
                return None
        except (TypeError, NotImplementedError):
            return None
        self.guessed = True
        return self._finder(held[0])


def _concatenated(finders: Sequence[_Find], ends: Sequence[int]) -> _Find:
    """The finder of datasets one after the other. ends has the index behind each of them."""
    total = ends[-1]

    def find(i: int) -> tuple[Dataset, int]:
        i = i if i >= 0 else i + total
        part = bisect.bisect_right(ends, i)
        return finders[part](i - (ends[part - 1] if part else 0))

    return find


def dataset_of(sampler: Any) -> Any:
    """The dataset that a sampler, or one that it wraps, was made for. None if no sampler knows it."""
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
