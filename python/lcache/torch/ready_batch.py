"""A batch that is made as a whole, as one array or by a function, and its path through a loader that collates.

torch's fetcher passes the result of __getitems__ to collate_fn. default_collate checks the type of the first element. Ready batches have their own element
types, which are registered with default_collate so that it returns the batch unchanged. For other collate functions a ready batch is a sequence of samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.utils.data
from torch.utils.data._utils.collate import default_collate_fn_map

from ..arrays import Layout, numpy_module
from ..batch import Batch
from ..errors import ArgumentError, SampleError


class ReadyBatch(Sequence[Any]):
    """A sequence of samples, which are rows of `value`: a tensor or an array, or a mapping or a tuple of them."""

    def __init__(self, value: Any, size: int) -> None:
        """size is the number of samples."""
        self.value, self._size = value, size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(self._size))]
        if not -self._size <= i < self._size:
            raise IndexError(f"sample {i} is outside the batch, which has {self._size} samples")
        i, value = i % self._size, self.value
        if isinstance(value, torch.Tensor) and value.shape[:1] == (self._size,):
            return value[i].as_subclass(_Row)
        if isinstance(value, Mapping):
            return _RowMapping(value, i)
        return _RowTuple(value, i) if isinstance(value, tuple) else _RowObject(value, i)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(self._size))


class _Row(torch.Tensor):
    """A sample of a tensor. Results of computations with it are plain tensors."""

    __torch_function__ = torch._C._disabled_torch_function_impl


class _RowMapping(Mapping[Any, Any]):
    """A sample of a mapping of columns."""

    def __init__(self, columns: Mapping[Any, Any], place: int) -> None:
        self._columns, self._place = columns, place

    def __getitem__(self, key: Any) -> Any:
        return self._columns[key][self._place]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


class _RowTuple(Sequence[Any]):
    """A sample of a tuple of columns."""

    def __init__(self, columns: tuple[Any, ...], place: int) -> None:
        self._columns, self._place = columns, place

    def __getitem__(self, i: Any) -> Any:
        return tuple(self)[i] if isinstance(i, slice) else self._columns[i][self._place]

    def __len__(self) -> int:
        return len(self._columns)


class _RowObject:
    """A sample of any other batch: `value` is the batch's element."""

    def __init__(self, whole: Any, place: int) -> None:
        self._whole, self._place = whole, place

    @property
    def value(self) -> Any:
        return self._whole[self._place]


def plain(sample: Any) -> Any:
    """A sample of a ready batch as a plain object of torch or Python."""
    if isinstance(sample, _Row):
        return sample.as_subclass(torch.Tensor)
    if isinstance(sample, _RowObject):
        return sample.value
    return dict(sample) if isinstance(sample, _RowMapping) else tuple(sample) if isinstance(sample, _RowTuple) else sample


def with_index(made: Any, label: Any, index: Any) -> tuple[Any, Any, Any]:
    """(x, y, index). A tuple of two is x and y; anything else is x."""
    x, y = made if isinstance(made, tuple) and len(made) == 2 else (made, label)
    return x, y, index


def with_columns(made: Sequence[Any], batch: Batch) -> Sequence[Any]:
    """with_index of all samples of a batch."""
    labels, indices = batch.labels.tolist(), batch.indices.tolist()
    if isinstance(made, ReadyBatch):
        return ReadyBatch(with_index(made.value, torch.tensor(labels), torch.tensor(indices)), len(made))
    return [with_index(*sample) for sample in zip(made, labels, indices)]


def _collate(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return batch.value if isinstance(batch, ReadyBatch) else torch.utils.data.default_collate([plain(sample) for sample in batch])


default_collate_fn_map.update(dict.fromkeys((_Row, _RowMapping, _RowTuple, _RowObject), _collate))


DecodeBatch = Callable[[Sequence[memoryview], Batch], Any]


class WholeBatch:
    """Makes all samples of a batch at once. `what` names it in errors."""

    def __init__(self, what: str, make: DecodeBatch | None) -> None:
        """make is None if it is a method of the dataset. Keeping that method here would make a reference cycle."""
        self.what, self._make = what, make

    def items(self, batch: Batch, method: DecodeBatch | None) -> Sequence[Any]:
        """The samples: a list with one item for each sample, or a ReadyBatch."""
        make = self._make or method
        assert make is not None
        made = make(batch.samples, batch)
        if not isinstance(made, list):
            return ReadyBatch(made, len(batch))
        if len(made) != len(batch):
            raise ValueError(f"{self.what} returned {len(made)} items for {len(batch)} samples: return one for each sample, or a batch that is not a list")
        return made


class Array:
    """Samples of one size as rows of one tensor. It can be pickled."""

    def __init__(self, dtype: Any, shape: int | Sequence[int]) -> None:
        layout = Layout(dtype, shape)
        self._dtype, self._shape = _dtype(layout), layout.shape

    def __call__(self, _: Sequence[memoryview], batch: Batch) -> torch.Tensor:
        return torch.from_numpy(batch.array(self._dtype, self._shape))


class Sequences:
    """Samples of one dimension, each as a tensor of its own length. It can be pickled."""

    def __init__(self, dtype: Any) -> None:
        self._dtype = _dtype(Layout(dtype, 1))

    def __call__(self, views: Sequence[memoryview], batch: Batch) -> list[torch.Tensor]:
        np = numpy_module('decode="array" needs')
        made = []
        for i, view in enumerate(views):
            size = self._dtype.itemsize
            if len(view) % size:
                name = batch.names[i]
                raise SampleError(f"sample {name!r} has {len(view):,} bytes, which is not a multiple of {size}, the size of {self._dtype}", name)
            made.append(torch.from_numpy(np.frombuffer(view, self._dtype).copy()))
        return made


def _dtype(layout: Layout) -> Any:
    try:
        torch.from_numpy(layout.numpy.empty(0, layout.dtype))
    except TypeError as e:
        raise ArgumentError(f'decode="array": torch has no dtype for {layout.dtype}: {e}') from None
    return layout.dtype


def chosen(decode: Any, decode_batch: Any, dtype: Any, shape: Any) -> WholeBatch | None:
    """The maker of whole batches that a Dataset's arguments name; None: samples are made one by one. Raises ArgumentError for contradicting arguments."""
    if decode_batch is not None:
        if decode is not None:
            raise ArgumentError("decode= and decode_batch= exclude each other: give only one")
        if not callable(decode_batch):
            raise ArgumentError(f"decode_batch={decode_batch!r} is not a function: give a function of (views, columns)")
    if decode == "array":
        if dtype is None:
            raise ArgumentError('decode="array" needs dtype=, and shape= unless samples are sequences of any length')
        return WholeBatch('decode="array"', Sequences(dtype) if shape is None else Array(dtype, shape))
    if dtype is not None or shape is not None:
        raise ArgumentError('dtype= and shape= need decode="array"')
    if decode is not None and not callable(decode):
        raise ArgumentError(f'decode={decode!r} is not a function: give a function of (data, sample), or "array"')
    return None if decode_batch is None else WholeBatch("decode_batch", decode_batch)
