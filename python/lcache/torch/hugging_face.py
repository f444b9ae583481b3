"""lcache.torch.cached: a dataset of the `datasets` package of Hugging Face, whose large cells come from lcache."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from .._client.options import Options
from ..errors import ArgumentError


def cached(
    dataset: Any,
    cache: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    *,
    columns: str | Iterable[str] | None = None,
    socket: str | os.PathLike[str] | None = None,
    job: str | None = None,
    batch_size: int | None = None,
    world_size: int | None = None,
    rank: int | None = None,
    budget: int | str | None = None,
    memory: int | str | None = None,
    timeout: float | None = None,
    likely_batch_size: int | None = None,
    cluster: str | None = None,
    cluster_key: str | os.PathLike[str] | None = None,
) -> Any:
    """A datasets.Dataset, such as load_dataset and load_from_disk return, whose large cells come from lcache.

        ds = datasets.load_from_disk("saved")
        ds = lcache.torch.cached(ds)
        loader = lcache.torch.DataLoader(ds, batch_size=256, shuffle=True, num_workers=8)

    The result has the items, columns, features, format and transform of the dataset. Its files are read once and cached. Cells of bytes, text and lists of
    numbers come from lcache, and all other values from the dataset's own table. Call cached last: after map, filter, select and shuffle. Later calls
    that only choose rows, columns or a format (select, shuffle, train_test_split, with_transform, …) work; others raise a TypeError.

    columns chooses what comes from lcache: names of columns. By default these are the columns of bytes, text and lists whose cells have on average at
    least 64 bytes. The other arguments are those of lcache.open.

    Raises ArgumentError for a streaming dataset, for one in memory, and if rows of the dataset are not in its files. Also raises the errors of lcache.open.
    Access raises IndexError, SampleError or DecodeError.
    """
    options = Options.of({name: value for name, value in locals().items() if name not in ("dataset", "columns")})
    try:
        import datasets
    except ImportError:
        raise ArgumentError(f"cached({type(dataset).__name__}): it takes a dataset of Hugging Face's package datasets, which is not installed") from None
    from .cached_dataset import CachedDataset, of_dataset

    if isinstance(dataset, CachedDataset):
        return dataset
    if isinstance(dataset, (datasets.DatasetDict, datasets.IterableDatasetDict)):
        raise ArgumentError(f"cached(…): it is a {type(dataset).__name__}: give one of its splits, such as cached(ds[{next(iter(dataset), 'train')!r}])")
    if isinstance(dataset, datasets.IterableDataset):
        raise ArgumentError("cached(…): a streaming dataset has no order that lcache could know: load it without streaming=True, or save it with save_to_disk")
    if not isinstance(dataset, datasets.Dataset):
        raise ArgumentError(f"cached(…): it takes a datasets.Dataset, not {type(dataset).__name__}: use lcache.torch.Dataset or ImageFolder for other data")
    return of_dataset(dataset, (columns,) if isinstance(columns, str) else None if columns is None else tuple(columns), options)
