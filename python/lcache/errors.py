"""The exceptions of this package. All derive from lcache.Error, and from the builtin exception of the same meaning if there is one."""

from __future__ import annotations

import builtins
import errno
import re


def printable(text: str) -> str:
    """A text that any stream can write. A byte that is not UTF-8, in a name that os.fsdecode decoded, becomes \\x and two hex digits."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # another surrogate, which os.fsdecode never makes
        return text.encode("utf-8", "backslashreplace").decode()


_CODE = re.compile(r" \[(LC\d{3})\]\s*$")


def split_code(message: str) -> tuple[str, str | None]:
    """A message without the code in brackets at its end, and that code. None: the message ends without one."""
    found = _CODE.search(message)
    return (message[: found.start()], found[1]) if found else (message, None)


class Error(Exception):
    """Base of every exception that this package raises on purpose.

    `code` identifies the error, such as "LC002", and stays the same when texts change; docs/errors.md lists the codes. It is the code that the server or the
    lcache program gave, otherwise that of the class. str() of the exception has it in brackets at the end.
    """

    code: str = "LC050"

    def __init__(self, message: str = "") -> None:
        # A message has a code if another process made it: the lcache program, or a worker whose exception torch raises again by its text.
        message, code = split_code(message)
        super().__init__(message)
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return f"{printable(super().__str__())} [{self.code}]"


class ArgumentError(Error, ValueError):
    """An argument that does not fit this job or server: an unknown index, rank or epoch, too large a batch, options that contradict each other."""

    code = "LC051"


class OSError(Error, builtins.OSError):  # named like the builtin, as are those below
    """The operating system refused a call. errno is set as in the builtin exception. filename is not set: the message has the path."""

    code = "LC052"

    def __init__(self, message: str, number: int | None = None) -> None:
        super().__init__(message)
        self.errno = number


class FileNotFoundError(OSError, builtins.FileNotFoundError):
    """A source, the folder of a cache, or the lcache program does not exist."""

    code = "LC053"


class NotADirectoryError(OSError, builtins.NotADirectoryError):
    """A file is where a directory should be."""

    code = "LC054"


class PermissionError(OSError, builtins.PermissionError):
    """This user may not read the source, or may not write the cache."""

    code = "LC055"


class ConnectionError(Error, builtins.ConnectionError):  # the name is part of the API
    """No server was found, the server refused this process, or the server ended and no other one started before the deadline."""

    code = "LC056"


class RefusedError(ConnectionError, builtins.PermissionError):
    """A server is running, and this user may not use it, or has no reason to trust it."""

    code = "LC057"


class ProtocolError(Error):
    """The server broke a rule of the protocol, or has another version of it."""

    code = "LC058"


class SampleError(Error):
    """One sample can't be read, neither from the cache nor from the source. `sample` is its name (None if unknown), `cause` the server's reason.

    If its file is gone, the exception is also a FileNotFoundError. If the server may not read the file, it is also a PermissionError.
    """

    code = "LC059"

    def __init__(self, message: str, sample: str | None = None, cause: str | None = None) -> None:
        super().__init__(message)
        self.sample = sample
        self.cause = cause


class MissingSampleError(SampleError, builtins.FileNotFoundError):
    """The sample's file is gone."""

    code = "LC002"  # that of the server, which alone reads files


class ForbiddenSampleError(SampleError, builtins.PermissionError):
    """The server's user may not read the sample's file."""

    code = "LC003"


class DecodeError(SampleError):
    """A sample's bytes were read, and decode, loader or a transform failed on them.

    `index` is the sample's dataset index, `sample` its name, `source` its source. `cause` is the type and text of the original error, which is also
    __cause__. torch copies an exception out of a worker process by its message alone: these attributes are then None. The exception is also an instance of
    the original error's class, except of IndexError and StopIteration, which would silently end a loop.
    """

    code = "LC060"

    def __init__(self, message: str, index: int | None = None, sample: str | None = None, source: str | None = None, cause: str | None = None) -> None:
        super().__init__(message, sample, cause)
        self.index = index
        self.source = source


class TimeoutError(Error, builtins.TimeoutError):  # the name is part of the API
    """A wait reached its deadline. The message names the awaited event."""

    code = "LC061"


_OF_ERRNO = {
    errno.ENOENT: FileNotFoundError,
    errno.ENOTDIR: NotADirectoryError,
    errno.EACCES: PermissionError,
    errno.EPERM: PermissionError,
}


def of_errno(number: int | None, message: str) -> OSError:
    """The exception for an errno."""
    return _OF_ERRNO.get(number or 0, OSError)(message, number)
