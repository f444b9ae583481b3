"""The keyword arguments of lcache.open in one list, and the flags of the lcache program that they become."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Options:
    """The keyword arguments of lcache.open, lcache.torch.Dataset and ImageFolder.

    The signatures repeat this list, because editors, type checkers and help() read signatures. Tests compare both. An option has its default unless the
    program gave another value.
    """

    cache: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None
    recipe: str | None = None
    seed: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    world_size: int | None = None
    rank: int | None = None
    drop_last: bool | None = None
    params: Mapping[str, Any] | None = None
    budget: int | str | None = None
    memory: int | str | None = None
    ext: str | Iterable[str] = ()
    flat: bool = False
    group: str = "none"
    labels: str | os.PathLike[str] | None = None
    allow_empty: bool = False
    follow_links: bool | None = None
    s3: Mapping[str, Any] | None = None
    on_error: str | None = None
    socket: str | os.PathLike[str] | None = None
    timeout: float = 60.0
    likely_batch_size: int | None = None
    job: str | None = None
    part: str | None = None
    columns: str | Iterable[str] | None = None
    label_column: str | None = None
    feature: str | Iterable[str] | None = None
    label_feature: str | None = None
    record_bytes: int | None = None
    dtype: Any = None
    shape: int | Sequence[int] | None = None
    label_field: str | None = None
    key: str | None = None
    stream: bool = False
    cluster: str | None = None
    cluster_key: str | os.PathLike[str] | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
        """The options among the arguments of a function, given its locals(). None stands for the default."""
        return cls(**{name: value for name, value in arguments(given).items() if value is not None})

    def changed(self) -> dict[str, Any]:
        """The options that differ from their default."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) != f.default}

    def __reduce__(self) -> Any:
        return functools.partial(Options, **self.changed()), ()  # a dataset's pickle stays small

    def of_order(self) -> Options:
        """The options that determine the order. All others have their default."""
        return Options(**{name: getattr(self, name) for name in (*_OF_CACHE, "world_size", "on_error")})

    def with_order(self, job: Mapping[str, Any]) -> Options:
        """These options, completed with the options of a cache's job. If the program gave a recipe, nothing of the cache's order is used."""
        if self.recipe is not None or not job.get("recipe"):
            return self
        return Options(**{**self.changed(), **{name: job[name] for name in _OF_CACHE if job.get(name) and getattr(self, name) is None}})

    def order_flags(self) -> list[str]:
        """The flags of `lcache ingest` for the order, without those for world size and ranks."""
        flags = [] if self.recipe is None else ["--recipe", self.recipe]
        for name, number in (("--seed", self.seed), ("--epochs", self.epochs), ("--batch-size", self.batch_size)):
            flags += [] if number is None else [name, str(number)]
        flags += ["--drop-last"] if self.drop_last else []
        for key, value in (self.params or {}).items():
            flags += ["--param", f"{key}={value}"]
        return flags


_OF_CACHE = ("recipe", "seed", "epochs", "batch_size", "drop_last", "params")  # the keys of a cache's job.json that determine the order


def arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of all options among the arguments of a function, given its locals()."""
    return {f.name: given.get(f.name) for f in fields(Options)}  # an ImageFolder has no flags of records


def param_texts(given: Mapping[str, Any] | None) -> dict[str, str] | None:
    """A recipe's parameters for `--param`: strings as they are, everything else as JSON."""
    if given is None:
        return None
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in given.items()}
