"""The second argument of decode: the index, name, label and parts of a sample."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Sample:
    """The second argument of decode. It unpacks as (index, name, label, parts).

    index is the dataset index. name is the path below the source, requested from the server at the first use. label is an int. parts is
    {extension: bytes}, in the order of the extensions; in a dataset without parts the extension is "".
    """

    __slots__ = ("_at", "_batch", "index", "label", "parts")

    def __init__(self, batch: Any, at: int, parts: dict[str, bytes]) -> None:
        self._batch, self._at, self.parts = batch, at, parts
        self.index: int = batch.indices[at]
        self.label: int = batch.labels[at]

    @property
    def name(self) -> str:
        return str(self._batch.names[self._at])

    def __iter__(self) -> Iterator[Any]:
        return iter((self.index, self.name, self.label, self.parts))

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: Any) -> Any:
        return (self.index, self.name, self.label, self.parts)[i]


def first_part(parts: dict[str, bytes]) -> bytes:
    """The bytes of a sample's first part."""
    return next(iter(parts.values()))
