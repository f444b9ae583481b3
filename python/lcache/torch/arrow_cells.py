"""The columns of an Arrow table whose cells lcache can serve, and arrays that are made of the served bytes.

A cell can be served if its value is one range of bytes in the file: bytes, text, and lists of numbers, in a column of their own or in a field of a
struct, as in the Image, Audio and Video features of `datasets`. source/internal/records/arrowschema.go has the same rule, and the same names of parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

Cell = Any  # the bytes of a cell, or a memoryview of them; None: the cell is null

_SAMPLED = 64  # chunks whose offsets are read for the mean size of a column's cells


class Leaf(NamedTuple):
    """A column, or a field of a column of structs, whose cells can be served."""

    column: str
    field: int | None  # the number of the struct's field; None: the column itself
    part: str  # the name of the part of a sample that has the cell
    type: pa.DataType

    def of(self, chunk: pa.Array) -> pa.Array:
        """The leaf's array in a chunk of its column."""
        return chunk if self.field is None else chunk.field(self.field)


def leaves(schema: pa.Schema) -> list[Leaf]:
    """All leaves of a schema that can be served. Columns with one name, and names that a flag can't hold, are left out."""
    found = []
    for column in schema:
        if schema.names.count(column.name) > 1 or not column.name or "," in column.name:
            continue
        if pa.types.is_struct(column.type):
            for number in range(column.type.num_fields):
                field = column.type.field(number)
                part = column.name if field.name == "bytes" else f"{column.name}.{field.name}"
                if _is_contiguous(field.type) and "," not in part:
                    found.append(Leaf(column.name, number, part, field.type))
        elif _is_contiguous(column.type):
            found.append(Leaf(column.name, None, column.name, column.type))
    parts = [leaf.part for leaf in found]
    return [leaf for leaf in found if parts.count(leaf.part) == 1]


def _is_contiguous(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or (pa.types.is_fixed_size_list(kind) and kind.list_size > 0):
        is_number = (pa.types.is_integer, pa.types.is_floating, pa.types.is_date, pa.types.is_timestamp, pa.types.is_duration)
        return any(check(kind.value_type) for check in is_number)
    if pa.types.is_fixed_size_binary(kind):
        return bool(kind.byte_width > 0)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Whether a type is bytes, such as those of an image."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def address(array: pa.Array) -> int | None:
    """The address of the buffer that tells the positions of a leaf's cells: offsets, or values of a fixed size. None: there is no buffer."""
    return _address_of(array.buffers()[-1 if pa.types.is_fixed_size_list(array.type) else 1])


def data_address(array: pa.Array) -> int | None:
    """The address of the bytes of a leaf's cells. None: there are none."""
    return _address_of(array.buffers()[-1])


def _address_of(buffer: pa.Buffer | None) -> int | None:
    return buffer.address if buffer is not None and buffer.size > 0 else None


def layout(kind: pa.DataType) -> str:
    """How a leaf's cells are read: equal for types whose cells are the same bytes."""
    if pa.types.is_fixed_size_list(kind):
        return f"lists of {kind.list_size} {kind.value_type}"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"lists of {kind.value_type}"
    return f"{kind.byte_width} bytes" if pa.types.is_fixed_size_binary(kind) else "bytes"


def mean_size(leaf: Leaf, chunks: Sequence[pa.Array]) -> float:
    """The mean number of bytes of a leaf's cells, from at most _SAMPLED chunks. Reads two offsets of each, and no cell."""
    kind = leaf.type
    if pa.types.is_fixed_size_binary(kind):
        return float(kind.byte_width)
    width = _element(kind)
    if pa.types.is_fixed_size_list(kind):
        return float(kind.list_size * width)
    count = total = 0
    for chunk in chunks[:: -(-len(chunks) // _SAMPLED) or 1]:
        array = leaf.of(chunk)
        if len(array) and address(array) is not None:
            offsets = np.frombuffer(array.buffers()[1], _offset_type(kind))
            total += int(offsets[array.offset + len(array)] - offsets[array.offset]) * width
            count += len(array)
    return total / count if count else 0.0


def has_missing_elements(leaf: Leaf, chunks: Sequence[pa.Array]) -> bool:
    """Whether a list has a null among its numbers."""
    if not (pa.types.is_list(leaf.type) or pa.types.is_large_list(leaf.type) or pa.types.is_fixed_size_list(leaf.type)):
        return False
    return any(array.values.null_count > 0 and array.flatten().null_count > 0 for array in map(leaf.of, chunks))


def _element(kind: pa.DataType) -> int:
    """The bytes of one element of a leaf's values."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return int(kind.value_type.bit_width) // 8
    return 1


def _offset_type(kind: pa.DataType) -> Any:
    wide = pa.types.is_large_list(kind) or pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
    return np.dtype("<i8" if wide else "<i4")


def array_of(kind: pa.DataType, cells: Sequence[Cell]) -> pa.Array:
    """An array of a leaf's type with these cells. The bytes are copied once."""
    count, nulls, width, validity = len(cells), 0, _element(kind), None
    if None in cells:
        present = [cell is not None for cell in cells]
        nulls, validity = count - sum(present), pa.array(present, pa.bool_()).buffers()[1]
    fixed = kind.byte_width if pa.types.is_fixed_size_binary(kind) else kind.list_size * width if pa.types.is_fixed_size_list(kind) else 0
    if nulls:
        filler = bytes(fixed)
        cells = [filler if cell is None else cell for cell in cells]
    data = b"".join(cells)
    if fixed:
        if len(data) != count * fixed:
            raise ValueError(f"cells have {len(data)} bytes, want {count} times {fixed}")
        if pa.types.is_fixed_size_list(kind):
            values = pa.Array.from_buffers(kind.value_type, count * kind.list_size, [None, pa.py_buffer(data)])
            return pa.Array.from_buffers(kind, count, [validity], nulls, 0, [values])
        return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(data)], nulls)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(list(map(len, cells)), out=offsets[1:])
    if width > 1:
        if (offsets % width).any():
            raise ValueError(f"a list has a number of bytes that is not a multiple of {width}")
        offsets //= width
    if offsets[-1] > np.iinfo(_offset_type(kind)).max:
        raise OverflowError(f"the values of {count} rows have {len(data):,} bytes, which an array of {kind} can't hold: request fewer rows at once")
    positions = pa.py_buffer(offsets.astype(_offset_type(kind)))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        values = pa.Array.from_buffers(kind.value_type, int(offsets[-1]), [None, pa.py_buffer(data)])
        return pa.Array.from_buffers(kind, count, [validity, positions], nulls, 0, [values])
    return pa.Array.from_buffers(kind, count, [validity, positions, pa.py_buffer(data)], nulls)


class Splitter:
    """Separates the columns of a table into the leaves that come from lcache and a small table of all other values, and joins both again."""

    def __init__(self, schema: pa.Schema, served: Sequence[Leaf]) -> None:
        self.schema, self._served = schema, list(served)
        self._fields = [list(kind) if pa.types.is_struct(kind) else [] for kind in schema.types]  # of columns of structs
        self._of: dict[str, list[Leaf]] = {}
        for leaf in served:
            self._of.setdefault(leaf.column, []).append(leaf)

    def small(self, table: pa.Table) -> pa.Table:
        """The values that lcache does not serve, without a copy. A column of structs becomes a column for each other field, and one with its nulls."""
        return pa.table(dict(self._small(table)))

    def _small(self, table: pa.Table) -> Iterator[tuple[str, Any]]:
        for number, column in enumerate(self.schema):
            served = self._of.get(column.name, [])
            whole = table.column(number)
            if not served:
                yield str(number), whole
            elif served[0].field is not None:
                fields = {leaf.field for leaf in served}
                for field in range(column.type.num_fields):
                    if field not in fields:
                        yield f"{number}.{field}", pa.chunked_array([chunk.field(field) for chunk in whole.chunks], column.type.field(field).type)
                if whole.null_count:
                    yield f"{number}.valid", pa.chunked_array([_validity(chunk) for chunk in whole.chunks], pa.bool_())

    def joined(self, small: pa.RecordBatch, cells: Sequence[Sequence[Cell]]) -> pa.Table:
        """The table of some rows: small has their other values, cells[k] the cells of the k-th served leaf."""
        arrays = dict(zip(self._served, cells))
        columns = []
        for number, column in enumerate(self.schema):
            served = self._of.get(column.name, [])
            if not served:
                columns.append(small.column(str(number)))
            elif served[0].field is None:
                columns.append(array_of(column.type, arrays[served[0]]))
            else:
                columns.append(self._struct(number, column.type, small, {leaf.field: arrays[leaf] for leaf in served}))
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _struct(self, number: int, kind: pa.DataType, small: pa.RecordBatch, served: dict[int | None, Sequence[Cell]]) -> pa.Array:
        fields = []
        for field in range(kind.num_fields):
            values = served.get(field)
            fields.append(small.column(f"{number}.{field}") if values is None else array_of(kind.field(field).type, values))
        mask = None
        if f"{number}.valid" in small.schema.names:
            mask = pa.array(~small.column(f"{number}.valid").to_numpy(zero_copy_only=False))
        return pa.StructArray.from_arrays(fields, fields=self._fields[number], mask=mask)


def _validity(chunk: pa.Array) -> pa.Array:
    """The bitmap of an array's values that are not null, as an array of booleans, without a copy."""
    bitmap = chunk.buffers()[0]
    if bitmap is None:
        return pa.array(np.ones(len(chunk), bool))
    return pa.Array.from_buffers(pa.bool_(), len(chunk), [None, bitmap], offset=chunk.offset)


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table as one batch."""
    if table.num_columns == 0:
        return pa.record_batch({})
    arrays = [column.combine_chunks() for column in table.columns]
    return pa.record_batch([pa.concat_arrays(a.chunks) if isinstance(a, pa.ChunkedArray) else a for a in arrays], schema=table.schema)


def cut(table: pa.Table, sizes: Sequence[int]) -> pa.Table:
    """The table with chunks of these sizes, without a copy."""
    whole, ends = one_batch(table), np.cumsum(sizes)
    return pa.Table.from_batches([whole.slice(end - size, size) for end, size in zip(ends.tolist(), sizes)], schema=table.schema)
