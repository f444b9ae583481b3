"""A server's description of itself and its job."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ..errors import ProtocolError

_NONE: Mapping[str, Any] = MappingProxyType({})


class Info(NamedTuple):
    """The server's answer to HELLO; docs/protocol.md describes the fields."""

    pid: int
    server: str  # an id of this run of the server
    token: str  # of this client's leases: with it a later connection keeps them
    name: str
    source: str
    fingerprint: str
    samples: int
    epochs: int  # 0: unknown
    batch_size: int  # 0: unknown
    world: int
    ranks: list[int]
    drop_last: bool
    recipe: str
    seed: str  # not every seed fits an int64
    classes: list[str]
    credit_bytes: int  # bytes of shared memory that this process may hold; 0: no limit
    version: str
    features: list[str]  # additions to the first version of the protocol
    on_error: str = "fail"
    parts: bool = False  # samples have parts
    params: Mapping[str, str] = _NONE  # of the recipe
    listing: Mapping[str, Any] = _NONE  # the options of the source's listing; empty: unknown

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Info:
        """Reads the answer. Raises ProtocolError if a field is missing or has another type."""
        values: dict[str, Any] = {}
        for key, kind in _KINDS.items():
            value = answer.get(key, cls._field_defaults.get(key))
            if (value is None and kind in (list, dict)) or value is _NONE:
                value = kind()  # Go writes an empty list or map as null
            if type(value) is not kind:
                raise ProtocolError(f"the server's answer to HELLO has {value!r:.40} as {key}")
            values[key] = value
        return cls(**values)


_KINDS: dict[str, type] = dict.fromkeys(Info._fields, str)
_KINDS.update(dict.fromkeys(("pid", "samples", "epochs", "batch_size", "world", "credit_bytes"), int))
_KINDS.update(drop_last=bool, parts=bool, ranks=list, classes=list, features=list, params=dict, listing=dict)
