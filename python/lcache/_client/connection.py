"""One socket to the server. It sends and receives frames, and receives the descriptor of the shared memory in the answer to HELLO.

It knows nothing of leases and jobs. It has no lock: its Session lets one thread at a time send, under the Session's lock, and one thread at a time receive.

An interrupt (a signal's handler that raises) comes after a call of the main thread, or at the next iteration of a loop, and never between two plain
statements. So a call that can't be repeated stores its result itself: list.extend calls recv and keeps the result, in one step. Fields that must change
together are set by statements without a call between them.
"""

from __future__ import annotations

import os
import select
import socket
import time
from typing import Any

from ..errors import ConnectionError, ProtocolError, RefusedError
from . import protocol
from .trust import require_server

_SUN_PATH = 107  # the longest path in bytes that fits sockaddr_un, without the final NUL


class Broken(Exception):
    """The connection ended, and another one may work. Internal: callers connect again, or raise lcache.ConnectionError instead."""


class Connection:
    """A connected socket. A frame is (type, request, body)."""

    def __init__(self, path: str, deadline: float, found: bool = False) -> None:
        """Connects. found: lcache found the socket in a cache; the user did not name it.

        Raises Broken if no server listens at path, ConnectionError if path can't be a server's socket, RefusedError if its server can't be trusted.
        """
        self.broken: Exception | None = None  # why nothing more can be received
        self.mute = False  # nothing more can be sent, though answers may still be received
        # The Session's lock guards the fields that follow.
        self.reader: object | None = None  # the call that receives; None: no thread receives
        self.answers: dict[int, Any] = {}  # the Session's answers by request number, until they are fetched
        self.job = 0  # the number of the job that requests belong to; 0: the server's own
        self._out = b""  # bytes to be sent
        self._sent: list[int] = []  # how many of them each call of send took
        # The received pieces, and the beginning of the next frame in the first piece. Only the reader uses it, or without a reader the holder of the lock.
        self.received: tuple[list[bytes], int] = [], 0
        self._sock = _dial(path, deadline)
        try:
            require_server(self._sock, path, found)
        except BaseException:
            self._sock.close()
            raise
        self._sock.setblocking(False)

    def close(self) -> None:
        """Closes the descriptor. In a forked child the server notices nothing, since the parent has the descriptor open, too."""
        if self.broken is None:
            self.broken = Broken("the connection was closed here")
        self.mute = True
        self._sock.close()

    def hang_up(self) -> None:
        """Ends the connection but keeps the descriptor open. A thread that waits on it wakes up, and its number can't be reused meanwhile."""
        self.mute = True
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the connection is gone already

    def fail(self, why: Exception) -> None:
        """Records why nothing more can be received. The first reason is kept."""
        if self.broken is None:
            self.broken = why.with_traceback(None)

    def why(self) -> Exception:
        """The reason as an exception. Each call makes a new one, because a raised exception refers to its stack frames and to views in them."""
        reason = self.broken or Broken("the server closed the connection")
        again = type(reason)(*reason.args)
        vars(again).update(vars(reason))
        return again

    def send(self, data: bytes = b"") -> None:
        """Sends the bytes that earlier calls left, then data, as far as the socket takes them. The next call sends the rest.

        A broken connection loses data.
        """
        if self.mute or self.broken is not None:
            return
        self._out += data
        while self._out:
            try:
                self._sent.extend(map(self._sock.send, (memoryview(self._out)[sum(self._sent) :],), (socket.MSG_NOSIGNAL,)))
            except BlockingIOError:
                return
            except OSError:
                # No fail() here: answers that the server sent before it closed can still be received.
                self.mute = True
                self._out, self._sent = b"", []
                return
            if sum(self._sent) == len(self._out):
                self._out, self._sent = b"", []

    @property
    def waits(self) -> bool:
        """Whether bytes wait for room in the socket."""
        return bool(self._out)

    def wait(self, seconds: float) -> bool:
        """Waits until bytes can be received, or sent if there are unsent ones. False after `seconds`."""
        events = select.POLLIN | (select.POLLOUT if self._out else 0)
        return self._poll(events, time.monotonic() + seconds)

    def receive(self) -> bool:
        """Receives the bytes that have arrived, without waiting. False if there are none. At the end of the stream it marks the connection as broken."""
        pieces = self.received[0]
        try:
            pieces.extend(map(self._sock.recv, (65536,)))
        except BlockingIOError:
            return False
        except OSError as e:
            self.fail(Broken(f"receive from the server: {e.strerror}"))
            return False
        if not pieces[-1]:
            self.fail(Broken("the server closed the connection"))
            return False
        return True

    def frame(self) -> tuple[int, int, bytes, tuple[list[bytes], int]] | None:
        """The first complete frame as (type, request, body, rest); None: no complete frame. It stays the first one until the caller sets received = rest.

        Marks the connection as broken at an invalid frame.
        """
        pieces, at = self.received
        have = sum(map(len, pieces)) - at
        if have < protocol.HEADER.size:
            return None
        try:
            length, kind, request = protocol.header(b"".join(pieces) if len(pieces[0]) < at + protocol.HEADER.size else pieces[0], at)
        except ProtocolError as e:
            self.fail(e)
            return None
        if have < 4 + length:
            return None
        if len(pieces) > 1:
            pieces[:] = [b"".join(pieces)]
        end = at + 4 + length
        return kind, request, pieces[0][at + protocol.HEADER.size : end], (pieces, end) if end < len(pieces[0]) else ([], 0)

    def receive_with_fd(self, deadline: float) -> tuple[int, bytes, int | None]:
        """The first frame of the stream as (type, body, descriptor). The caller owns the descriptor. Raises Broken or ProtocolError."""
        received: list[tuple[bytes, list[tuple[int, int, bytes]], int, Any]] = []
        given: int | None = None
        try:
            while (frame := self.frame()) is None:
                if self.broken is not None:
                    raise self.why()
                if not self._poll(select.POLLIN, deadline):
                    raise Broken("the server did not answer HELLO")
                try:
                    received.extend(map(self._sock.recvmsg, (65536,), (socket.CMSG_SPACE(4 * 8),), (socket.MSG_CMSG_CLOEXEC,)))
                except BlockingIOError:
                    continue
                except OSError as e:
                    raise Broken(f"receive from the server: {e.strerror}") from None
                if not received[-1][0]:
                    raise Broken("the server closed the connection")
                self.received[0].append(received[-1][0])
            kind, _, body, self.received = frame
            fds = _descriptors(received)
            count = 1 if self.frame() is None else 2
            if count > 1 or len(fds) > 1:
                raise ProtocolError(f"the server answered HELLO with {count} frames and {len(fds)} descriptors")
            given = fds[0] if fds else None
            return kind, body, given
        finally:
            for fd in _descriptors(received):
                if fd != given:
                    os.close(fd)

    def _poll(self, events: int, deadline: float) -> bool:
        poll = select.poll()
        try:
            poll.register(self._sock, events)
        except ValueError:
            return True  # closed meanwhile: the next call on the socket reports it
        return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))


def _descriptors(received: list[tuple[bytes, list[tuple[int, int, bytes]], int, Any]]) -> list[int]:
    """The descriptors in what recvmsg returned."""
    fds: list[int] = []
    for _, extra, _, _ in received:
        for level, kind, data in extra:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds += memoryview(data)[: len(data) // 4 * 4].cast("i").tolist()
    return fds


def _dial(path: str, deadline: float) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    parent = None
    try:
        name = os.fsencode(path)
        if len(name) > _SUN_PATH:
            directory, base = os.path.split(name)
            parent = os.open(directory or b".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            name = b"/proc/self/fd/%d/%s" % (parent, base)
        sock.settimeout(max(0.001, deadline - time.monotonic()))
        sock.connect(name)
        return sock
    except (FileNotFoundError, ConnectionRefusedError, BlockingIOError, socket.timeout) as e:
        sock.close()
        raise Broken(f"no server at {path}: {e.strerror or 'it does not accept'}") from None
    except (OSError, ValueError) as e:
        sock.close()
        kind = RefusedError if isinstance(e, PermissionError) else ConnectionError
        raise kind(f"connect to {path}: {getattr(e, 'strerror', None) or e}") from None
    finally:
        if parent is not None:
            os.close(parent)
