"""The exceptions of this package. All are lcache.Error. Some are also the builtin exception of the same meaning."""

from __future__ import annotations

import builtins


class Error(Exception):
    """Base of every exception that this package raises on purpose."""


class ArgumentError(Error, ValueError):
    """An argument that this job or server can't take: an index, rank or epoch that it lacks, too large a batch, options that contradict."""


class ConnectionError(Error, builtins.ConnectionError):  # the name is part of the API
    """There is no server, the server refused this process, or it ended and did not come back within the deadline."""


class ProtocolError(Error):
    """The server sent something that the protocol does not allow, or has another version of the protocol."""


class SampleError(Error):
    """One sample can't be read from cache or source. `sample` is its name (None if unknown), `cause` the server's reason."""

    def __init__(self, message: str, sample: str | None = None, cause: str | None = None) -> None:
        super().__init__(message)
        self.sample = sample
        self.cause = cause


class DecodeError(SampleError):
    """A sample's bytes were read, and decode, loader or a transform failed on them.

    `index` is the sample's dataset index, `sample` its name, `source` its source, `cause` the type and text of the original error, which is
    also __cause__. torch copies an error out of a worker process by its message alone: all attributes are None there.
    """

    def __init__(self, message: str, index: int | None = None, sample: str | None = None, source: str | None = None, cause: str | None = None) -> None:
        super().__init__(message, sample, cause)
        self.index = index
        self.source = source


class TimeoutError(Error, builtins.TimeoutError):  # the name is part of the API
    """A wait reached its deadline. The message names the purpose of the wait."""
