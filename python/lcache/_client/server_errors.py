"""The exceptions for ERROR answers. The code of an ERROR decides which; docs/protocol.md lists the codes."""

from __future__ import annotations

from ..errors import ArgumentError, Error, ForbiddenSampleError, MissingSampleError, ProtocolError, RefusedError, SampleError, TimeoutError
from . import protocol
from .connection import Broken
from .program_errors import in_python


class NoRoom(TimeoutError):
    """Leases leave no room for the request's samples, but the server lends them in parts. Internal: the caller copies them."""


class LoanOver(Error):
    """The server needed the memory before its bytes were copied. Internal: the caller requests them again."""


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
    "LC013": Broken,  # the server ends, and another one may start
}

# The codes of kinds and reasons, if the server sends no code, or one that is newer than this client.
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
    """The exception for an ERROR answer. Broken: the server ends, and another one may start. what names the request; "": the message alone.

    embedded: the message shows the server's flags as arguments of lcache.open. A server that was started by hand has flags.
    """
    try:
        failure = protocol.read_error(body)
    except ProtocolError as e:
        return e
    message = in_python(failure.message) if embedded else failure.message
    text = f"{what}: {message}" if what else message
    kind = _class_of(failure)
    error = kind(text, failure.sample, message) if issubclass(kind, SampleError) else kind(text)
    if isinstance(error, Error) and failure.code:
        error.code = failure.code
    return error


def may_be_too_large(error: Error) -> bool:
    """Whether fewer samples at once may help. An error of an older server, or of this process, has only the code of its class, which does not say."""
    return error.code in (type(error).code, TOO_LARGE)


def _class_of(failure: protocol.Failure) -> type[Exception]:
    """The class for a code. For an unknown kind without a known code it is Error, which concerns that request alone."""
    if failure.code in _CLASSES:
        return _CLASSES[failure.code]
    code = _KINDS.get(failure.kind, "")
    if code == _KINDS["sample"]:
        code = _REASONS.get(failure.reason or "", code)
    return _CLASSES.get(code, Error)
