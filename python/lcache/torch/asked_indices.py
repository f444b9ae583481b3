"""Checks the indices that a program gives to a dataset: one, or several at once."""

from __future__ import annotations

import operator
from typing import Any

_KINDS = "a dataset's index is an integer, or a list, array or tensor of integers"


def one(index: Any) -> int:
    """An index as an int. Raises TypeError unless it is an integer."""
    try:
        return operator.index(index)
    except TypeError as e:
        raise _wrong(index, e) from None


def plain(indices: Any) -> list[int]:
    """A batch of indices as a list of int. Raises TypeError unless all are integers."""
    given = indices[:]  # an iteration over a TaggedBatch is recorded, one over its slice is not
    try:
        return list(map(operator.index, given))
    except TypeError as e:
        raise next((_wrong(index, e) for index in given if not hasattr(index, "__index__")), e) from None


def are_many(index: Any) -> bool:
    """Whether an index stands for several: a list, a range, an array or a tensor. A tensor of one element is one index, as it is for a list."""
    if isinstance(index, (list, range)):
        return True
    return hasattr(index, "tolist") and getattr(index, "ndim", 1) > 0 and not (hasattr(index, "numel") and index.numel() == 1)


def many(indices: Any) -> Any:
    """Several indices as a list. Raises TypeError for a mask of bools, which would be read as the numbers 0 and 1."""
    listed = indices if isinstance(indices, list) else list(indices) if isinstance(indices, range) else indices.tolist()
    if listed and isinstance(listed[0], bool):
        raise TypeError(f"{_KINDS}, not a mask: use torch.utils.data.Subset(dataset, indices) for a part of the samples")
    return listed


def _wrong(index: Any, cause: TypeError) -> TypeError:
    if isinstance(index, slice):
        return TypeError(f"{_KINDS}, not a slice: use torch.utils.data.Subset(dataset, range(…)) for a part of the samples")
    return TypeError(f"{_KINDS}, not {type(index).__name__}: {cause}")
