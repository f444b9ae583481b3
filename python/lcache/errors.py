"""What can go wrong, as exceptions. All are lcache.Error; some are also the builtin that a caller may already catch."""

from __future__ import annotations

import builtins


class Error(Exception):
    """Base of everything this package raises on purpose."""


class ArgumentError(Error, ValueError):
    """The request makes no sense for this job: an index, rank or epoch that it does not have, or too large a batch."""


class ConnectionError(Error, builtins.ConnectionError):  # the name is part of the API
    """There is no server, it refused this process, or it went away and did not come back within the deadline."""


class ProtocolError(Error):
    """The server said something that the protocol does not allow, or speaks another version of it."""


class SampleError(Error):
    """One sample can't be had from anywhere. `sample` is its name (None if unknown), `cause` the server's reason."""

    def __init__(self, message: str, sample: str | None = None, cause: str | None = None) -> None:
        super().__init__(message)
        self.sample = sample
        self.cause = cause


class DecodeError(SampleError):
    """A sample's bytes are there, and decode, or what else makes a sample of them, failed on them. `index` is its index, `source` where it comes from,
    `cause` the type and text of the error that was raised, which is also its __cause__. All but the message are None where torch has made
    a worker's error again."""

    def __init__(self, message: str, index: int | None = None, sample: str | None = None, source: str | None = None, cause: str | None = None) -> None:
        super().__init__(message, sample, cause)
        self.index = index
        self.source = source


class TimeoutError(Error, builtins.TimeoutError):  # the name is part of the API
    """A wait reached its deadline; the message says what it waited for."""
