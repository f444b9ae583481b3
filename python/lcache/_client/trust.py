"""Checks that only this user or root could have written a file, a folder, or a server's answers.

Root trusts only root. The Go package trust has the same rule.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shlex
import socket
import stat
import struct
from collections.abc import Iterable

from ..errors import RefusedError, of_errno, printable

_log = logging.getLogger("lcache")

_WRITABLE = 0o022  # permissions by which other users can write


def is_mine(uid: int) -> bool:
    """Whether a uid is this process's, or root's."""
    return uid in (0, os.geteuid())


def is_trusted(found: os.stat_result) -> bool:
    """Whether only this user and root could have written the checked files."""
    return is_mine(found.st_uid) and not found.st_mode & _WRITABLE


def open_file(path: str, flags: int) -> int:
    """Opens a regular file that no other user can write. It never follows a link, and never waits for a pipe. A new file has mode 0600."""
    fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, 0o600)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise of_errno(errno.EINVAL, f"open {path}: it is not a regular file: remove it")
        _require(path, found)
    except BaseException:
        os.close(fd)
        raise
    return fd


def require_folder(path: str) -> None:
    """Raises PermissionError if a folder exists and other users can write it."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        _require(path, os.stat(path))


def _require(path: str, found: os.stat_result) -> None:
    if is_trusted(found):
        return
    shown, me = shlex.quote(path), os.geteuid()
    if is_mine(found.st_uid):
        mode = stat.S_IMODE(found.st_mode)
        who = "have root " if found.st_uid != me else ""
        text = f"{path} can be written by other users (mode {mode:04o}): {who}run chmod -R go-w {shown}, or give another cache="
    else:
        whose = "and root trusts only what belongs to root" if me == 0 else f"not to user {me} or root"
        text = f"{path} belongs to user {found.st_uid}, {whose}: give another cache=, or if you know who wrote it have root run chown -R {me} {shown}"
    raise of_errno(errno.EACCES, text)


def make_folder(path: str) -> None:
    """Makes a folder and its missing parents, for this user only, whatever the umask is."""
    above = os.path.dirname(path)
    if not os.path.lexists(above):
        make_folder(above)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def warn_of_folders(folders: Iterable[str]) -> None:
    """Logs one warning if any user can replace one of these folders."""
    for folder in folders:
        above = os.path.realpath(os.path.dirname(folder))
        while True:
            if is_open(above):
                said = f"{folder}: any user can replace this folder: run chmod +t {shlex.quote(above)}, or give another cache="
                _log.warning(printable(said))
                return
            if above == os.path.dirname(above):
                break
            above = os.path.dirname(above)


def is_open(folder: str) -> bool:
    """Whether any user can remove other users' files from a folder."""
    try:
        mode = os.stat(folder).st_mode
    except OSError:
        return False
    return bool(mode & 0o002) and not mode & stat.S_ISVTX


def require_server(sock: socket.socket, path: str, found: bool) -> None:
    """Raises RefusedError for a server that can't be trusted.

    found: lcache found the socket in a cache. Its server must then be this user's, or root's. Otherwise the user named the socket. Its server may then be
    another user's, if the socket is that user's too, and is in a folder where no one else can replace it. The same holds for a link to the socket.
    """
    _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if is_mine(uid):
        return
    if found:
        raise RefusedError(f"connect to {path}: the server belongs to user {uid}, and its socket was found, not given: give the socket if you trust that user")
    real = os.path.realpath(path)
    for folder in (os.path.dirname(os.path.abspath(path)), os.path.dirname(real)):
        if is_open(folder):
            raise RefusedError(
                f"connect to {path}: the server belongs to user {uid}, and any user can replace sockets in {folder}: "
                "have its owner run chmod o-w there, or use a socket in another folder"
            )
    try:
        owner = os.stat(real).st_uid
    except OSError as e:
        raise RefusedError(f"check the socket {path}: {e.strerror}") from None
    if owner != uid:
        raise RefusedError(f"connect to {path}: the server belongs to user {uid}, and the socket to another user: restart that server")
