"""The boundaries of the parts of a batch's samples, as sent by the server. Usually all samples have the same extensions, and the boundaries are columns."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from operator import add
from typing import Union

from ..errors import ProtocolError

_TWO = struct.Struct("<II")

Boundaries = list[tuple[str, int, int]]  # of one sample: (extension, begin, end) of each part, in bytes of the sample


class AlikeParts(Sequence[Boundaries]):
    """The parts of samples that all have the same extensions."""

    __slots__ = ("_ends", "_exts")

    def __init__(self, exts: Sequence[str], ends: Sequence[Sequence[int]]) -> None:
        """ends[0] has the beginning of each sample's first part, which is 0. ends[k + 1] has the end of each sample's part k."""
        self._exts, self._ends = exts, ends

    def __len__(self) -> int:
        return len(self._ends[0])

    def __getitem__(self, i: int) -> Boundaries:  # type: ignore[override]
        ends = [column[i] for column in self._ends]
        return list(zip(self._exts, ends, ends[1:]))

    def __iter__(self) -> Iterator[Boundaries]:
        return (list(zip(self._exts, ends, ends[1:])) for ends in zip(*self._ends))

    def part(self, ext: str | None) -> tuple[Sequence[int], Sequence[int]] | None:
        """(begins, ends) in bytes of the part with an extension in each sample. ext None: the first part. Returns None if no sample has such a part."""
        k = 0 if ext is None else self._exts.index(ext) if ext in self._exts else -1
        return None if k < 0 else (self._ends[k], self._ends[k + 1])


BatchParts = Union[AlikeParts, "list[Boundaries]"]  # of several samples


def first_parts(bounds: BatchParts) -> Iterator[tuple[int, int]]:
    """The beginning and end of each sample's first part."""
    if isinstance(bounds, AlikeParts):
        found = bounds.part(None)
        assert found is not None
        return zip(*found)
    return ((begin, end) for (_, begin, end), *_ in bounds)


def read_parts(body: bytes | memoryview, lengths: Sequence[int]) -> BatchParts:
    """The parts of samples with these lengths; [("", 0, length)] for a sample in one piece. There may be fewer samples than lengths, but at least one."""
    body = memoryview(body)
    asked = len(lengths)
    count, exts = _TWO.unpack_from(body) if len(body) >= 8 else (-1, 0)
    if not min(asked, 1) <= count <= asked or len(body) < 8 + 4 * count + 4 * exts:
        raise ProtocolError(f"parts answer of {len(body)} bytes does not hold 1 to {asked} samples")
    counts = body[8 : 8 + 4 * count].cast("I")
    at = 8 + 4 * count + 8 * sum(counts)
    if len(body) < at + 4 * exts:
        raise ProtocolError(f"parts answer of {len(body)} bytes does not hold the {sum(counts)} parts that it announces")
    columns = body[8 + 4 * count : at].cast("I")
    names, start = [], at + 4 * exts
    for length in body[at:start].cast("I"):
        names.append(str(body[start : start + length], "utf-8", "surrogateescape"))
        start += length
    if start != len(body):
        raise ProtocolError(f"parts answer of {len(body)} bytes should have {start}")
    return _alike(counts, columns, names, lengths) or _each(counts, columns, names, lengths)


def all_parts(body: memoryview, lengths: Sequence[int]) -> BatchParts:
    """The parts of exactly len(lengths) samples. Raises ProtocolError if there are fewer."""
    found = read_parts(body, lengths)
    if len(found) != len(lengths):
        raise ProtocolError(f"an answer of {len(lengths)} samples has the parts of {len(found)}")
    return found


def _alike(counts: memoryview, columns: memoryview, names: list[str], lengths: Sequence[int]) -> AlikeParts | None:
    """The parts, if all samples have the same extensions, and their parts fill them."""
    each = counts[0] if counts else 0
    if not each or each * len(counts) * 2 != len(columns) or min(counts) != max(counts):
        return None
    exts = columns[: 2 * each : 2].tolist()
    if max(exts) >= len(names) or any(columns[2 * k :: 2 * each].tolist() != [ext] * len(counts) for k, ext in enumerate(exts)):
        return None
    ends: list[list[int]] = [[0] * len(counts)]
    for k in range(each):
        ends.append(list(map(add, ends[-1], columns[2 * k + 1 :: 2 * each].tolist())))
    return AlikeParts([names[ext] for ext in exts], ends) if ends[-1] == list(lengths[: len(counts)]) else None


def _each(counts: memoryview, columns: memoryview, names: list[str], lengths: Sequence[int]) -> list[Boundaries]:
    """The parts of each sample. Raises ProtocolError if they do not fill it."""
    result, at = [], 0
    for whole, n in zip(lengths, counts):
        bounds: Boundaries = []
        end = 0
        for ext, size in zip(columns[at : at + 2 * n : 2], columns[at + 1 : at + 2 * n : 2]):
            if ext >= len(names):
                raise ProtocolError(f"parts answer names extension {ext} of {len(names)}")
            bounds.append((names[ext], end, end + size))
            end += size
        if n and end != whole:
            raise ProtocolError(f"parts answer has parts of {end} bytes for a sample of {whole}")
        at += 2 * n
        result.append(bounds or [("", 0, whole)])
    return result
