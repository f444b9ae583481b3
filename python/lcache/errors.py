"""The exceptions of this package. All are lcache.Error. Those that have a builtin exception of the same meaning are that exception, too."""

from __future__ import annotations

import builtins
import errno


def printable(text: str) -> str:
    """A text for people, which any stream can write: a byte of a name that is not UTF-8, as os.fsdecode gives it, becomes \\x and two hex digits."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # other surrogates, which no name has
        return text.encode("utf-8", "backslashreplace").decode()


class Error(Exception):
    """Base of every exception that this package raises on purpose.

    `code` is the code of the error, such as "LC002", which stays the same when texts change; docs/errors.md lists the codes. None: the error is not an answer
    of the server or of the lcache program, or an older one's.
    """

    code: str | None = None

    def __str__(self) -> str:
        return printable(super().__str__())


class ArgumentError(Error, ValueError):
    """An argument that this job or server can't take: an index, rank or epoch that it lacks, too large a batch, options that contradict."""


class OSError(Error, builtins.OSError):  # named as the builtin, like those below
    """The operating system refused something. errno is set as in the builtin exception; the message says all, so there is no filename."""

    def __init__(self, message: str, number: int | None = None) -> None:
        super().__init__(message)
        self.errno = number


class FileNotFoundError(OSError, builtins.FileNotFoundError):
    """A source, a cache's folder or the lcache program is not there."""


class NotADirectoryError(OSError, builtins.NotADirectoryError):
    """A file stands where a directory should be."""


class PermissionError(OSError, builtins.PermissionError):
    """This user may not read the source, or not write the cache."""


class ConnectionError(Error, builtins.ConnectionError):  # the name is part of the API
    """There is no server, the server refused this process, or it ended and did not come back within the deadline."""


class RefusedError(ConnectionError, builtins.PermissionError):
    """There is a server, and this user may not use it."""


class ProtocolError(Error):
    """The server sent something that the protocol does not allow, or has another version of the protocol."""


class SampleError(Error):
    """One sample can't be read from cache or source. `sample` is its name (None if unknown), `cause` the server's reason.

    If its file is gone, the exception is a FileNotFoundError, too; if the server may not read the file, a PermissionError.
    """

    def __init__(self, message: str, sample: str | None = None, cause: str | None = None) -> None:
        super().__init__(message)
        self.sample = sample
        self.cause = cause


class MissingSampleError(SampleError, builtins.FileNotFoundError):
    """The sample's file is gone."""


class ForbiddenSampleError(SampleError, builtins.PermissionError):
    """The server's user may not read the sample's file."""


class DecodeError(SampleError):
    """A sample's bytes were read, and decode, loader or a transform failed on them.

    `index` is the sample's dataset index, `sample` its name, `source` its source, `cause` the type and text of the original error, which is
    also __cause__. torch copies an error out of a worker process by its message alone: all attributes are None there. The exception is an instance of the
    original error's class, too, except of IndexError and StopIteration, at which a loop would end in silence.
    """

    def __init__(self, message: str, index: int | None = None, sample: str | None = None, source: str | None = None, cause: str | None = None) -> None:
        super().__init__(message, sample, cause)
        self.index = index
        self.source = source


class TimeoutError(Error, builtins.TimeoutError):  # the name is part of the API
    """A wait reached its deadline. The message names the purpose of the wait."""


_OF_ERRNO = {
    errno.ENOENT: FileNotFoundError,
    errno.ENOTDIR: NotADirectoryError,
    errno.EACCES: PermissionError,
    errno.EPERM: PermissionError,
}


def of_errno(number: int | None, message: str) -> OSError:
    """The exception of an errno."""
    return _OF_ERRNO.get(number or 0, OSError)(message, number)
