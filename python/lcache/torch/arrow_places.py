"""Where the rows of a memory-mapped Arrow table are in its files.

A cell of a mapped table is at an address. The kernel's list of mappings tells the file, and the position in it, that an address belongs to. So a row is
found by comparing positions, and a table that was sliced, concatenated, or got other columns is matched with its files exactly, or not at all.
"""

from __future__ import annotations

import bisect
import hashlib
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ..errors import ArgumentError, of_errno
from .arrow_cells import Leaf, address, data_address, has_missing_elements, layout, leaves, mean_size

Inode = tuple[str, str]  # device and inode, as the list of mappings has them


class _Mappings:
    """The mappings of files into this process's memory, at the time when this object was made."""

    def __init__(self) -> None:
        found = []
        with open("/proc/self/maps", "rb") as f:
            for line in f:
                span, _, offset, device, inode = line.split(None, 5)[:5]
                if inode != b"0":
                    begin, end = span.split(b"-")
                    found.append((int(begin, 16), int(end, 16), int(offset, 16), (device.decode(), inode.decode())))
        self._found = sorted(found)
        self._begins = [begin for begin, *_ in self._found]

    def position(self, at: int) -> tuple[Inode, int] | None:
        """The file of an address, and the position in it. None: the address is of other memory."""
        number = bisect.bisect_right(self._begins, at) - 1
        if number < 0:
            return None
        begin, end, offset, inode = self._found[number]
        return (inode, at - begin + offset) if at < end else None


class Rows(NamedTuple):
    """Rows of a table that follow each other in the rows of all files."""

    first: int  # in the table
    length: int
    at: int  # the number of the first of them among all rows of all files


class Place(NamedTuple):
    """Where a leaf of a table is."""

    part: str  # the leaf's part in the files, whose columns may have other names
    rows: list[Rows]
    size: float  # the mean bytes of its cells in all rows of the files, so that all parts of a dataset have the same


class _Served(NamedTuple):
    """A chunk of a leaf in a file."""

    part: str
    first: int  # the number of its first row among all rows of all files
    layout: str
    data: tuple[Inode, int] | None  # the place of its bytes


class Files:
    """The files of a table, in the order of its rows."""

    def __init__(self, paths: Sequence[str]) -> None:
        """Maps the files, and reads their metadata. Raises an OSError of lcache for a missing file, ArgumentError for one that is not of Arrow."""
        self.paths: list[str] = []
        self.rows = 0  # of all files
        tables = []
        self._stats: list[os.stat_result] = []  # of the files that have rows
        for path in dict.fromkeys(os.path.realpath(path) for path in paths):
            tables.append(_table_of(path))
            self.paths.append(path)
            if len(tables[-1]):
                self._stats.append(os.stat(path))
        self._mappings = _Mappings()
        self._leaves: dict[tuple[Inode, int], _Served] = {}  # by the place of a leaf's positions
        for table in tables:
            self._add(table)
        self._sizes = self._mean_sizes(tables)
        self._tables = tables  # keeps the mappings

    def digest(self) -> str:
        """The same as `record_files` of a server that has listed these files; docs/protocol.md describes it."""
        return hashlib.sha256(b"".join(b"%d %d\n" % (s.st_size, s.st_mtime_ns) for s in self._stats)).hexdigest()

    def with_parts(self, parts: Sequence[str]) -> list[str]:
        """The paths of the files that have all of these parts."""
        return [path for path, table in zip(self.paths, self._tables) if set(parts) <= {leaf.part for leaf in leaves(table.schema)}]

    def _add(self, table: pa.Table) -> None:
        for leaf in leaves(table.schema):
            first = self.rows
            for chunk in table.column(leaf.column).chunks:
                array = leaf.of(chunk)
                found = self._position(address(array)) if len(chunk) else None
                if found is not None:
                    self._leaves[found] = _Served(leaf.part, first, layout(leaf.type), self._position(data_address(array)))
                first += len(chunk)
        self.rows += table.num_rows

    def _position(self, at: int | None) -> tuple[Inode, int] | None:
        return None if at is None else self._mappings.position(at)

    def _mean_sizes(self, tables: Sequence[pa.Table]) -> dict[str, float]:
        """The mean bytes of the cells of each part."""
        chunks: dict[str, tuple[Leaf, list[pa.Array]]] = {}
        for table in tables:
            for leaf in leaves(table.schema):
                chunks.setdefault(leaf.part, (leaf, []))[1].extend(table.column(leaf.column).chunks)
        return {part: mean_size(leaf, found) for part, (leaf, found) in chunks.items()}

    def place(self, leaf: Leaf, chunks: Sequence[pa.Array]) -> Place | str:
        """The place of a leaf, or the reason why its cells are not all in the files, which completes "column x …"."""
        parts: set[str] = set()
        rows: list[Rows] = []
        first = 0
        for chunk in chunks:
            array = leaf.of(chunk)
            if len(array) == 0:
                continue
            position = self._position(address(array))
            found = None if position is None else self._leaves.get(position)
            if found is not None and found.layout != layout(leaf.type):
                return f"has values of another type in its files: {found.layout}, and {layout(leaf.type)} in the dataset"
            if found is None or found.data != self._position(data_address(array)):
                return "is not in the files as it is in the dataset" if not rows else f"is in the files only in a part of the rows, not from row {first} on"
            parts.add(found.part)
            place = Rows(first, len(array), found.first + array.offset)
            if rows and rows[-1].at + rows[-1].length == place.at:
                rows[-1] = rows[-1]._replace(length=rows[-1].length + place.length)
            else:
                rows.append(place)
            first += len(array)
        if len(parts) != 1:
            return f"has different names in its files: {', '.join(sorted(parts))}"
        part = parts.pop()
        if self._has_missing_elements(part):
            return "has lists with missing numbers in its files"
        return Place(part, rows, self._sizes[part])

    def _has_missing_elements(self, part: str) -> bool:
        """Whether a list has a null among its numbers in any row of the files: a server serves all rows."""
        parts = ((table, leaf) for table in self._tables for leaf in leaves(table.schema) if leaf.part == part)
        return any(has_missing_elements(leaf, table.column(leaf.column).chunks) for table, leaf in parts)


def _table_of(path: str) -> pa.Table:
    """The table of a file in Arrow's format for streams or files, mapped."""
    try:
        mapped = pa.memory_map(path)
    except OSError as e:
        raise of_errno(e.errno, f"open {path}, a file of the dataset: {os.strerror(e.errno) if e.errno else e}: load the dataset again") from None
    try:
        try:
            return pa.ipc.open_stream(mapped).read_all()
        except pa.ArrowInvalid:
            return pa.ipc.open_file(mapped).read_all()
    except pa.ArrowException as e:
        raise ArgumentError(f"read {path}, a file of the dataset: {e}") from None


class Numbers:
    """Translates a table's rows to the numbers of these rows among all rows of its files."""

    def __init__(self, rows: Sequence[Rows]) -> None:
        self._begins = np.array([r.first for r in rows], np.int64)
        self._shifts = np.array([r.at - r.first for r in rows], np.int64)
        self.is_identity = len(rows) == 1 and rows[0].first == rows[0].at == 0

    def of(self, rows: Any) -> Any:
        """The numbers of an array of rows."""
        return rows + self._shifts[np.searchsorted(self._begins, rows, "right") - 1]
