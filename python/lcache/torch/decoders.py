"""How a batch's bytes become what a dataset returns: sample by sample, as one array, or by a function that gets the whole batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..arrays import Layout
from ..batch import Batch
from ..errors import ArgumentError
from .ready_batch import ReadyBatch

DecodeBatch = Callable[[Sequence[memoryview], Batch], Any]


class WholeBatch:
    """Makes all samples of a batch at once. `what` names it in errors."""

    def __init__(self, what: str, make: DecodeBatch | None) -> None:
        """make is None if it is a method of the dataset. Keeping that method here would make a reference cycle."""
        self.what, self._make = what, make

    def items(self, batch: Batch, method: DecodeBatch | None) -> Sequence[Any]:
        """The samples: a list of as many as the batch has, or a ReadyBatch."""
        make = self._make or method
        assert make is not None
        made = make(batch.samples, batch)
        if not isinstance(made, list):
            return ReadyBatch(made, len(batch))
        if len(made) != len(batch):
            raise ValueError(f"{self.what} returned {len(made)} items for {len(batch)} samples: return one for each, or a batch that is not a list")
        return made


class Array:
    """Samples of one size as rows of one tensor. It pickles."""

    def __init__(self, dtype: Any, shape: int | Sequence[int]) -> None:
        layout = Layout(dtype, shape)
        try:
            torch.from_numpy(layout.numpy.empty(0, layout.dtype))
        except TypeError as e:
            raise ArgumentError(f'decode="array": torch has no dtype for {layout.dtype}: {e}') from None
        self._dtype, self._shape = layout.dtype, layout.shape

    def __call__(self, _: Sequence[memoryview], batch: Batch) -> torch.Tensor:
        return torch.from_numpy(batch.array(self._dtype, self._shape))


def chosen(decode: Any, decode_batch: Any, dtype: Any, shape: Any) -> WholeBatch | None:
    """What the arguments of a Dataset name; None: sample by sample. Raises ArgumentError for arguments that contradict."""
    if decode_batch is not None:
        if decode is not None:
            raise ArgumentError("decode= and decode_batch= both say how samples are made: give one of them")
        if not callable(decode_batch):
            raise ArgumentError(f"decode_batch={decode_batch!r} is no function: it gets the batch's views and columns")
    if decode == "array":
        if dtype is None or shape is None:
            raise ArgumentError('decode="array" needs dtype= and shape=, those of one sample')
        return WholeBatch('decode="array"', Array(dtype, shape))
    if dtype is not None or shape is not None:
        raise ArgumentError('dtype= and shape= are for decode="array"')
    if decode is not None and not callable(decode):
        raise ArgumentError(f'decode={decode!r} is no function of bytes, and not "array"')
    return None if decode_batch is None else WholeBatch("decode_batch", decode_batch)

