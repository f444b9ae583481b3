"""From the indices of a training dataset to those of the lcache datasets below it, through torch's Subset and ConcatDataset.

A wrapper of another kind may do with indices what it likes. If it is as long as the one dataset that it holds, it is guessed that it passes
them on; whoever uses the route has to see whether that is so.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.data import ConcatDataset, Subset

from .dataset import Dataset

Place = tuple  # (lcache dataset, index in it)


class Route:
    """What a dataset is made of. `leaves` are its lcache datasets; none: what it does with an index is not known."""

    def __init__(self, dataset: Any) -> None:
        self.leaves: list[Dataset] = []
        self.direct = isinstance(dataset, Dataset)
        self.guessed = False  # a wrapper is taken for one that passes indices on
        self._find = self._finder(dataset)
        if self._find is None:
            self.leaves = []

    def batch(self, indices: Sequence[int]) -> dict[str, list[int]]:
        """The batch's part of each leaf, by the leaf's key."""
        if self.direct:
            return {self.leaves[0]._key: list(indices)}
        parts: dict[str, list[int]] = {leaf._key: [] for leaf in self.leaves}
        assert self._find is not None
        for i in indices:
            leaf, index = self._find(i)
            parts[leaf._key].append(index)
        return parts

    def _finder(self, dataset: Any) -> Callable[[int], Place] | None:
        if isinstance(dataset, Dataset):
            if dataset not in self.leaves:
                self.leaves.append(dataset)
            size = len(dataset)
            return lambda i: (dataset, i if i >= 0 else i + size)
        if type(dataset) is Subset:
            below = self._finder(dataset.dataset)
            indices = dataset.indices
            return None if below is None else lambda i: below(int(indices[i]))
        if type(dataset) is ConcatDataset:
            finders = [self._finder(part) for part in dataset.datasets]
            if any(find is None for find in finders):
                return None
            ends = dataset.cumulative_sizes
            total = ends[-1]

            def find(i: int) -> Place:
                i = i if i >= 0 else i + total
                part = bisect.bisect_right(ends, i)
                return finders[part](i - (ends[part - 1] if part else 0))  # type: ignore[misc]

            return find
        return self._guess(dataset)

    def _guess(self, wrapper: Any) -> Callable[[int], Place] | None:
        held = [v for v in getattr(wrapper, "__dict__", {}).values() if isinstance(v, (Dataset, Subset, ConcatDataset))]
        try:
            if len(held) != 1 or len(wrapper) != len(held[0]):
                return None
        except (TypeError, NotImplementedError):
            return None
        self.guessed = True
        return self._finder(held[0])


def dataset_of(sampler: Any) -> Any:
    """The dataset that a sampler, or one that it wraps, was made for; None if none of them says."""
    for _ in range(8):
        for name in ("data_source", "dataset"):
            found = getattr(sampler, name, None)
            inner = getattr(found, "_sampler", None)  # Lightning's
            if inner is not None:
                break
            if found is not None and hasattr(found, "__getitem__"):
                return found
        else:
            inner = next((s for s in (getattr(sampler, n, None) for n in ("batch_sampler", "sampler", "_sampler")) if s is not None), None)
        if inner is None:
            return None
        sampler = inner
    return None
