"""The exceptions of ERROR answers. The code of an ERROR decides which one; docs/protocol.md lists the codes."""

from __future__ import annotations

from ..errors import ArgumentError, Error, ForbiddenSampleError, MissingSampleError, ProtocolError, RefusedError, SampleError, TimeoutError
from . import protocol
from .connection import Broken
from .program_errors import in_python


class NoRoom(TimeoutError):
    """Leases leave no room for the request's samples, but the server lends them in parts. Internal: the caller copies them."""


class LoanOver(Error):
    """The server needed the memory before its bytes were copied. Internal: the caller asks for them again."""


TOO_LARGE = "LC008"

_CLASSES: dict[str, type[Exception]] = {
    "LC001": SampleError,
    "LC002": MissingSampleError,
    "LC003": ForbiddenSampleError,
    "LC004": TimeoutError,
    "LC005": NoRoom,
    "LC006": LoanOver,
    "LC007": ArgumentError,
    TOO_LARGE: ArgumentError,
    "LC009": Error,  # cancelled
    "LC010": Error,  # a fault of the server
    "LC011": ProtocolError,
    "LC012": RefusedError,
    "LC013": Broken,  # the server goes away, and another one may come
}

# The codes of kinds and reasons: for a server that sends no code, and for a code that is newer than this client.
_KINDS = {
    "sample": "LC001",
    "timeout": "LC004",
    "room": "LC005",
    "late": "LC006",
    "argument": "LC007",
    "protocol": "LC011",
    "denied": "LC012",
    "closing": "LC013",
}
_REASONS = {"not_found": "LC002", "permission": "LC003"}


def error_of(body: bytes, what: str, embedded: bool = False) -> Exception:
    """The exception of an ERROR answer. Broken: the server goes away, and another may come. what names the request, "" none.

    embedded: flags that the server names are arguments of lcache.open. Those of a server that was started by hand stay flags.
    """
    try:
        failure = protocol.read_error(body)
    except ProtocolError as e:
        return e
    message = in_python(failure.message) if embedded else failure.message
    text = f"{what}: {message}" if what else message
    kind = _class_of(failure)
    error = kind(text, failure.sample, message) if issubclass(kind, SampleError) else kind(text)
    if isinstance(error, Error):
        error.code = failure.code
    return error


def may_be_too_large(error: Error) -> bool:
    """Whether fewer samples at once may help. An error without a code, of an older server or of this process, does not say."""
    return error.code in (None, TOO_LARGE)


def _class_of(failure: protocol.Failure) -> type[Exception]:
    """The class of a code. An unknown kind without a known code is an error of that request."""
    if failure.code in _CLASSES:
        return _CLASSES[failure.code]
    code = _KINDS.get(failure.kind, "")
    if code == _KINDS["sample"]:
        code = _REASONS.get(failure.reason or "", code)
    return _CLASSES.get(code, Error)
