"""The dataset that lcache.torch.cached returns."""

from __future__ import annotations

import copy
import logging
import os
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
from datasets.formatting import format_table, get_formatter

from .._client.memory import keep_freed
from .._client.options import Options
from ..errors import ArgumentError, Error, printable
from ..job import Job
from ..written_sources import written_list
from . import asked_indices
from .arrow_cells import Cell, Leaf, Splitter, cut, is_bytes, leaves, one_batch
from .arrow_places import Files, Numbers, Place, Rows
from .dataset import Dataset
from .dataset_job import job_of

_log = logging.getLogger("lcache")

_SAVE = 'ds.save_to_disk("saved"), then cached(datasets.load_from_disk("saved"))'
_LEAST = 64  # bytes: the mean size from which a column's cells come from lcache
_MOST_PARTS = 16  # of a sample
_MOST_COPIED = 64 << 20  # bytes: a table of small values of this size is copied to memory, because pages of the files may be dropped at any time
_WITHOUT_CHUNKS = (None, "arrow", "custom", "pandas", "polars")  # formats that do not depend on a table's chunks
_ITERATED = 16  # rows that an iteration requests at once

# Methods of datasets.Dataset that choose rows, columns or a format. Their result is cached again, by the same server.
_CACHED_AGAIN = frozenset(
    ("filter", "remove_columns", "rename_column", "rename_columns", "select", "select_columns", "shard", "shuffle", "skip", "sort", "take", "train_test_split")
    + ("with_format", "with_transform", "cast_column")
)
# Methods that write new values, which would be read without lcache.
_BEFORE = frozenset(
    ("add_column", "add_item", "align_labels_with_mapping", "batch", "cast", "class_encode_column", "flatten", "flatten_indices", "map", "repeat")
)


def of_dataset(dataset: Any, columns: tuple[str, ...] | None, options: Options, shared: CachedDataset | None = None) -> CachedDataset:
    """The cached dataset. shared: another one, whose job it uses if it has the same files."""
    paths = datasets.table.list_table_cache_files(dataset.data)
    if len(dataset) == 0:
        raise ArgumentError("cached(…): the dataset has no rows: there is nothing to read")
    if not paths:
        raise ArgumentError(f"cached(…): the dataset is in memory, and lcache reads files: {_SAVE}")
    paths = [os.path.realpath(path) for path in paths]
    files = Files(shared.paths if shared is not None and set(paths) <= set(shared.paths) else paths)
    served, parts, rows = _served(dataset, files, columns)
    holders = files.with_parts(parts)
    if holders != files.paths:  # concatenate_datasets(axis=1): each column has files of its own
        files = Files(holders)
        place = files.place(served[0], dataset.data.table.column(served[0].column).chunks)
        assert isinstance(place, Place)
        rows = place.rows
    if shared is not None and shared.paths == tuple(files.paths) and set(parts) <= set(shared.parts):
        return CachedDataset(dataset, shared.job, tuple(files.paths), served, parts, rows, files.rows, columns, options)
    chosen = sorted(parts)
    job = job_of(written_list("arrow", files.paths, options.cache, chosen), replace(options, columns=chosen, flat=True))
    try:
        if job.info.listing.get("record_files") not in (None, files.digest()):  # the server ran already, so the files were not listed again
            stop = f"`lcache stop {job.info.pid}`"
            raise ArgumentError(f"cached(…): the files of the dataset changed after its server had listed them: {stop}, and run this again")
        if job.samples != files.rows:
            raise ArgumentError(f"cached(…): the files have {job.samples} rows now, but had {files.rows} when the dataset was loaded: load it again")
        return CachedDataset(dataset, job, tuple(files.paths), served, parts, rows, files.rows, columns, options)
    except BaseException:
        job.close()
        raise


def _served(dataset: Any, files: Files, columns: tuple[str, ...] | None) -> tuple[list[Leaf], list[str], list[Rows]]:
    """The leaves whose cells come from lcache, the parts that have them, and their rows. Raises ArgumentError if there are none."""
    table = dataset.data.table
    found, chunks = leaves(table.schema), {name: table.column(name).chunks for name in table.column_names}
    if columns is not None:
        unknown = [name for name in columns if name not in table.column_names]
        unfit = [name for name in columns if name not in (leaf.column for leaf in found)]
        if unknown or unfit:
            why = f"it has no column {unknown[0]!r}" if unknown else f"its column {unfit[0]!r} has no bytes, text or lists of numbers"
            can = ", ".join(dict.fromkeys(leaf.column for leaf in found)) or "no column of it"
            raise ArgumentError(f"cached(columns={list(columns)!r}): {why}; lcache can serve {can}")
        found = [leaf for leaf in found if leaf.column in columns]
    if not found:
        raise ArgumentError("cached(…): the dataset has no column of bytes, text or lists of numbers, so lcache has nothing to serve: use it as it is")
    places: dict[Leaf, Place] = {}
    reasons = []
    for leaf in found:
        place = files.place(leaf, chunks[leaf.column])
        if isinstance(place, str):
            reasons.append(f"column {leaf.part!r} {place}")
        else:
            places[leaf] = place
    _warn_of_paths(places)
    served = sorted(places, key=lambda leaf: -places[leaf].size)
    if columns is None:
        served = [leaf for leaf in served if places[leaf].size >= _LEAST] or served[:1]
    if not served:
        raise ArgumentError(f"cached(…): {'; '.join(reasons)}: {_SAVE}")
    rows = places[served[0]].rows
    parts: dict[str, Leaf] = {}
    for leaf in served:
        if places[leaf].rows != rows or places[leaf].part in parts:
            reasons.append(f"column {leaf.part!r} is in other rows of the files than {served[0].part!r}")
        elif len(parts) == _MOST_PARTS:
            reasons.append(f"column {leaf.part!r} is the smallest of more than {_MOST_PARTS}")
        else:
            parts[places[leaf].part] = leaf
    if reasons:
        _log.warning("cached: %s: read without lcache", printable("; ".join(reasons)))
    return list(parts.values()), list(parts), rows


def _warn_of_paths(places: dict[Leaf, Place]) -> None:
    """Logs a warning for a column of images or sounds that has only the paths of their files."""
    for leaf, place in places.items():
        if leaf.field is not None and leaf.part == leaf.column and is_bytes(leaf.type) and place.size == 0:
            _log.warning("cached: column %r has only paths: its files are read without lcache; save_to_disk puts their bytes into the dataset", leaf.column)


class CachedDataset(Dataset[Any]):
    """A datasets.Dataset whose large cells come from lcache. It is also a map-style lcache dataset, so its loaders push their orders.

    Attributes and methods that are not defined here are those of the datasets.Dataset.
    """

    _derived = (*Dataset._derived, "_features", "_splitter", "_small", "_table_rows", "_ends", "lcache_kept")

    def __init__(
        self,
        dataset: Any,
        job: Job,
        paths: tuple[str, ...],
        served: Sequence[Leaf],
        parts: Sequence[str],
        rows: Sequence[Rows],
        file_rows: int,
        columns: tuple[str, ...] | None,
        options: Options,
    ) -> None:
        """parts[k] is the part that has the cells of served[k]. rows: those of the table. file_rows: the number of rows of all files."""
        super().__init__(job=job)
        self.paths, self.parts = paths, tuple(parts)
        self._dataset = copy.copy(dataset)  # set_format and set_transform change it
        self._served, self._rows, self._file_rows = tuple(served), tuple(rows), file_rows
        self._columns, self._options = columns, options
        self._prepare()

    def _prepare(self) -> None:
        """Computes what a pickle leaves out."""
        table, indices = self._dataset.data.table, self._dataset._indices
        self._length = len(self._dataset)
        self._features = self._dataset.features  # each access makes a deep copy
        self._splitter = Splitter(table.schema, self._served)
        self._table_rows: Any = None if indices is None else indices.table.column(0).to_numpy().astype(np.int64, copy=False)
        numbers = Numbers(self._rows)
        self.lcache_kept = None
        if indices is not None or not numbers.is_identity or self._length != self._file_rows:
            numbered = numbers.of(np.arange(self._length) if self._table_rows is None else self._table_rows)
            self.lcache_kept = array("I", numbered.astype(np.uint32).tobytes())
        small = self._splitter.small(table)
        self._ends: Any = None  # of the batches of the table; computed at the first use
        plain = not any(isinstance(kind, pa.BaseExtensionType) for kind in small.schema.types)
        self._small: Any = one_batch(small) if plain and small.nbytes <= _MOST_COPIED else datasets.table.InMemoryTable(small)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_dataset":
            raise AttributeError(name)
        if name in _BEFORE:
            return lambda *_, **__: _call_before(name)
        found = getattr(self._dataset, name)
        return found if not callable(found) or name.startswith("_") else _Method(self, name, found)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._dataset)})

    def __repr__(self) -> str:
        return f"<lcache.torch.cached {self._dataset!r}>"

    def lcache_overrides_access(self) -> bool:
        return False

    def cached_again(self, made: Any, method: str) -> Any:
        """The result of a method of the datasets.Dataset, with lcache if it is a dataset."""
        if not isinstance(made, (datasets.Dataset, datasets.DatasetDict)):
            return made
        if method not in _CACHED_AGAIN:
            _call_before(method)
        if isinstance(made, datasets.DatasetDict):
            return datasets.DatasetDict({name: self.cached_again(part, method) for name, part in made.items()})
        return of_dataset(made, self._columns, self._options, self)

    # Items.

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self._dataset[key]
        if isinstance(key, slice):
            key = range(*key.indices(self._length))
        if isinstance(key, range) or (isinstance(key, Iterable) and getattr(key, "ndim", 1) > 0):
            keys = key if isinstance(key, list) else np.fromiter(key, np.int64).tolist()
            if len(keys) == 0:
                return self._dataset[[]]
            table, job = self._fetched_table(keys)
            return self._formatted(self._in_chunks(table, key), keys[:], keys[:], job)
        if isinstance(key, bool):
            raise TypeError("dataset index must be int, str, slice or collection of int, not bool")
        index = asked_indices.one(key)
        job, _, _, parts = self._entry(self._in_job(index))
        return self._formatted(self._table([index], [[parts.get(part)] for part in self.parts]), 0, [index], job)

    def _in_chunks(self, table: Any, key: Any) -> Any:
        """The table of the rows of a key, in the chunks that datasets.Dataset gives it. The types of missing numbers in numpy's and torch's formats
        depend on them.
        """
        if self._dataset.format["type"] in _WITHOUT_CHUNKS:
            return table
        if not isinstance(key, range) or key.step != 1 or self._table_rows is not None:
            return cut(table, [1] * len(table))
        if self._ends is None:
            self._ends = np.cumsum([len(batch) for batch in self._dataset.data.to_batches()])
        ends = self._ends[(self._ends > key.start) & (self._ends < key.stop)]
        return cut(table, np.diff([key.start, *np.unique(ends), key.stop]).tolist())

    def __getitems__(self, keys: Any) -> Any:
        return datasets.Dataset.__getitems__(self, keys)

    def __iter__(self) -> Iterator[Any]:
        for first in range(0, self._length, _ITERATED):
            keys = list(range(first, min(first + _ITERATED, self._length)))
            table, job = self._fetched_table(keys)
            for place, key in enumerate(keys):
                yield self._formatted(table.slice(place, 1), 0, [key], job)

    def iter(self, batch_size: int, drop_last_batch: bool = False) -> Iterator[Any]:
        """Yields batches of rows, as datasets.Dataset.iter does."""
        end = self._length // batch_size * batch_size if drop_last_batch else self._length
        for first in range(0, end, batch_size):
            yield self[first : first + batch_size]

    def _fetched_table(self, keys: list[int]) -> tuple[Any, Job]:
        """The table of rows, from one request, and the job that served them."""
        wanted, asked = self._requested(keys)
        batches = self._batches(wanted, asked)
        keep_freed(sum(sum(batch.lengths) for batch in batches))
        table = self._table(keys[:], [[cell for batch in batches for cell in batch.views_of(part)] for part in self.parts])
        for batch in batches:
            batch.release()
        self._request_following(asked, batches[-1])
        return table, asked.job

    def _table(self, keys: Sequence[int], cells: Sequence[Sequence[Cell]]) -> Any:
        """The table of rows whose served cells are given. keys are indices of this dataset."""
        if self._small.num_columns == 0:
            return self._splitter.joined(self._small, cells)
        rows = np.fromiter(keys, np.int64, len(keys))
        rows[rows < 0] += self._length
        if self._table_rows is not None:
            rows = self._table_rows[rows]
        small = self._small.take(pa.array(rows)) if isinstance(self._small, pa.RecordBatch) else one_batch(self._small.fast_gather(rows))
        return self._splitter.joined(small, cells)

    def _formatted(self, table: Any, key: Any, keys: list[int], job: Job) -> Any:
        """Rows in the dataset's format, decoded and transformed. Raises DecodeError with the sample's name if that fails."""
        began = time.perf_counter()
        try:
            return self._format(table, key)
        except Error:
            raise
        except Exception as e:
            place = self._failing(table, len(keys))
            if place is None:
                raise
            raise self._undecodable(self._in_job(keys[place]), e) from e
        finally:
            self._count(job, began)

    def _failing(self, table: Any, count: int) -> int | None:
        """The first row of a table that can't be formatted; None: only all of them together can't."""
        for place in range(count):
            try:
                self._format(table.slice(place, 1), [0])
            except Exception:  # noqa: BLE001  the program's transform may raise anything
                return place
        return None

    def _format(self, table: Any, key: Any) -> Any:
        how = self._dataset.format
        formatter = get_formatter(how["type"], features=self._features, **(how["format_kwargs"] or {}))
        return format_table(table, key, formatter=formatter, format_columns=how["columns"], output_all_columns=how["output_all_columns"])


class _Method:
    """A method of a cached dataset that is one of the datasets.Dataset."""

    def __init__(self, cached: CachedDataset, name: str, method: Any) -> None:
        self._cached, self._name, self._method = cached, name, method
        self.__doc__ = method.__doc__

    def __call__(self, *args: Any, **more: Any) -> Any:
        return self._cached.cached_again(self._method(*args, **more), self._name)


def _call_before(method: str) -> Any:
    raise TypeError(f"{method} of a cached dataset: its result has new values, which lcache does not have: call {method} first, and lcache.torch.cached last")
