"""A DecodeError that is also an instance of the class of its cause, so that `except OSError` around a dataset catches the same errors as without lcache."""

from __future__ import annotations

import copyreg
import functools
import sys
from typing import Any

from ..errors import DecodeError, printable, split_code

# These would silently end loops: list(dataset) stops at an IndexError, and a generator's caller at a StopIteration.
_END_LOOPS = (IndexError, StopIteration, StopAsyncIteration)

_OF_SYSTEM = ("errno", "strerror", "filename", "filename2")  # attributes of an OSError


def decode_error(cause: Exception, message: str, index: int | None, sample: str | None, source: str | None) -> DecodeError:
    """The DecodeError for a cause. It has the cause's attributes, and no reference to the cause."""
    kind: Any = type(cause)
    error = _class_for(kind)(message, index, sample, source, f"{type(cause).__name__}: {cause}")
    for name, value in vars(cause).items():
        error.__dict__.setdefault(name, value)
    if isinstance(cause, OSError) and isinstance(error, OSError):
        for name in _OF_SYSTEM:
            setattr(error, name, getattr(cause, name, None))
    return error


class _Kind(type):
    """The type of the classes made here. It lets pickle make them again, because they are in no module."""


class _AsCause(DecodeError):
    """The methods of a DecodeError with a second base class, whose constructor and text are not used."""

    def __init__(self, message: str, index: int | None = None, sample: str | None = None, source: str | None = None, cause: str | None = None) -> None:
        message, _ = split_code(message)
        self.args = (message,)
        self.index, self.sample, self.source, self.cause = index, sample, source, cause
        if isinstance(self, SyntaxError):
            self.msg = message  # tracebacks print this

    def __str__(self) -> str:
        return f"{printable(str(self.args[0]))} [{DecodeError.code}]"  # self.code may be an attribute of the cause

    def __reduce__(self) -> Any:
        return type(self), (str(self), self.index, self.sample, self.source, self.cause)


@functools.cache
def _class_for(cause: Any) -> type[DecodeError]:
    """The class that combines DecodeError with cause, or with the nearest base of cause for which that is possible."""
    made = (_combined(base) for base in cause.__mro__ if issubclass(base, Exception))
    return next((found for found in made if found is not None), DecodeError)


@functools.cache
def _combined(base: Any) -> type[DecodeError] | None:
    """The class that combines DecodeError with base. None if that is impossible, or if base can't be found by name in the loader's process."""
    if base is Exception or issubclass(base, _END_LOOPS) or not _is_found_by_name(base):
        return None
    try:
        made: Any = _Kind("DecodeError", (_AsCause, base), {"__module__": DecodeError.__module__, "__doc__": DecodeError.__doc__})
        made.lcache_cause = base
        made("a text", 0, "a name", "a source", "a cause")
    except Exception:  # noqa: BLE001  a class may refuse subclasses in any way
        return None
    return made  # type: ignore[no-any-return]


def _is_found_by_name(base: type) -> bool:
    found: Any = sys.modules.get(base.__module__)
    for name in base.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is base


def _pickled(made: Any) -> Any:
    return _combined, (made.lcache_cause,)


copyreg.pickle(_Kind, _pickled)
