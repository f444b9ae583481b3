"""Samples of one size as a numpy array. No other module imports numpy, and this one does so only when an array is requested."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .errors import ArgumentError, Error


class OtherSize(Exception):
    """A sample does not have the size of its array. Internal: the caller adds the sample's name."""

    def __init__(self, place: int, length: int, expected: int, described: str) -> None:
        super().__init__(f"has {length:,} bytes, and {described} has {expected:,}")
        self.place = place


class Layout:
    """A numpy dtype and the shape of one sample."""

    def __init__(self, dtype: Any, shape: int | Sequence[int]) -> None:
        """Raises Error without numpy, ArgumentError for an invalid dtype or shape."""
        self.numpy = numpy_module("arrays need", " (batch.samples works without it)")
        try:
            self.dtype = self.numpy.dtype(dtype)
            self.shape = (int(shape),) if hasattr(shape, "__index__") else tuple(int(n) for n in shape)
        except (TypeError, ValueError) as e:
            raise ArgumentError(f"dtype {dtype!r} and shape {shape!r} do not describe an array: {e}") from None
        if self.dtype.hasobject or self.dtype.itemsize == 0:
            raise ArgumentError(f"dtype {self.dtype} has no fixed number of bytes")
        if min(self.shape, default=1) < 1:
            raise ArgumentError(f"shape {self.shape}: each dimension must be 1 or more")
        self.bytes = math.prod(self.shape) * self.dtype.itemsize  # of one sample

    def require(self, lengths: Sequence[int]) -> None:
        """Raises OtherSize unless each length is that of the layout."""
        if lengths.count(self.bytes) != len(lengths):
            place = next(i for i, n in enumerate(lengths) if n != self.bytes)
            raise OtherSize(place, lengths[place], self.bytes, f"an array of {self.dtype} {self.shape}")

    def gathered(self, memory: memoryview, offsets: Sequence[int]) -> Any:
        """A new array of the samples that begin at offsets in memory, all of this layout's length and within the memory."""
        np = self.numpy
        if not len(offsets):
            return np.empty((0, *self.shape), self.dtype)
        # Element i of `every` is the sample that begins at byte i. The elements overlap. Indexing copies the requested ones.
        every = np.ndarray((len(memory) - self.bytes + 1,), np.dtype((np.void, self.bytes)), memory, 0, (1,))
        return self._shaped(every[np.array(offsets, dtype=np.intp)])

    def joined(self, samples: Sequence[memoryview]) -> Any:
        """A new array of samples, each in a buffer of its own and of this layout's length."""
        return self._shaped(self.numpy.frombuffer(bytearray().join(samples), dtype=self.numpy.uint8))

    def _shaped(self, raw: Any) -> Any:
        return raw.view(self.dtype).reshape(-1, *self.shape)


def numpy_module(needs: str, instead: str = "") -> Any:
    """Returns numpy. Without numpy it raises an Error that names what needs it, and the alternative."""
    try:
        import numpy
    except ImportError:
        raise Error(f"{needs} numpy, which is not installed here: pip install numpy{instead}") from None
    return numpy
