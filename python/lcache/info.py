"""What a server says of itself and its job."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from .errors import ProtocolError

_NONE: Mapping[str, Any] = MappingProxyType({})


class Info(NamedTuple):
    """The server's answer to HELLO: docs/protocol.md."""

    pid: int
    server: str
    token: str
    name: str
    source: str
    fingerprint: str
    samples: int
    epochs: int
    batch_size: int
    world: int
    ranks: list[int]
    drop_last: bool
    recipe: str
    seed: str
    classes: list[str]
    credit_bytes: int
    version: str
    features: list[str]  # beyond the first version of the protocol
    on_error: str = "fail"
    parts: bool = False  # samples have parts
    params: Mapping[str, str] = _NONE  # of the recipe
    listing: Mapping[str, Any] = _NONE  # what of the source is listed; empty: the server does not say

    @classmethod
    def of(cls, said: dict[str, Any]) -> Info:
        values: dict[str, Any] = {}
        for key, kind in _KINDS.items():
            value = said.get(key, cls._field_defaults.get(key))
            if value is None and kind in (list, dict) or value is _NONE:
                value = kind()  # how Go writes an empty one is null
            if type(value) is not kind:
                raise ProtocolError(f"the server's answer to HELLO has {value!r:.40} as {key}")
            values[key] = value
        return cls(**values)


_KINDS: dict[str, type] = dict.fromkeys(Info._fields, str)
_KINDS.update(dict.fromkeys(("pid", "samples", "epochs", "batch_size", "world", "credit_bytes"), int))
_KINDS.update(drop_last=bool, parts=bool, ranks=list, classes=list, features=list, params=dict, listing=dict)
