"""One socket to the server: it sends and receives frames, and receives the memory's descriptor in the answer to HELLO. It knows no leases and no jobs.

A Connection has no lock. Its Session lets one thread at a time send, under the Session's lock, and one thread at a time receive.
"""

from __future__ import annotations

import os
import select
import socket
import time

from . import protocol
from .errors import ConnectionError, ProtocolError, RefusedError
from .trust import require_server

_SUN_PATH = 107  # bytes of a path that sockaddr_un has room for, without the final NUL


class Broken(Exception):
    """The connection ended, and another one may work. Internal: callers connect again, or raise lcache.ConnectionError instead."""


class Connection:
    """A connected socket. A frame is (type, request, body)."""

    def __init__(self, path: str, deadline: float, found: bool = False) -> None:
        """Connects. found: lcache found the socket in a cache, and nobody named it.

        Raises Broken if no server listens at path, ConnectionError if path can't be a server's socket, RefusedError if its server can't be trusted.
        """
        self.broken: Exception | None = None  # why nothing more can be received
        self.mute = False  # nothing more can be sent, though answers may still be received
        # The Session's lock guards the fields that follow. Requests are known by their numbers.
        self.reading = False  # a thread receives
        self.job = 0  # the number of the job that requests belong to; 0: the server's own
        self.asked: set[int] = set()  # requests whose answers are awaited
        self.unwanted: set[int] = set()  # requests whose answers will be discarded
        self.answers: dict[int, tuple[int, bytes]] = {}  # (type, body) of answers that no thread has fetched yet
        self._out = bytearray()  # bytes to be sent
        self._in = bytearray()  # bytes received, of incomplete frames
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
        """Ends the connection and keeps the descriptor open: another thread that waits on it notices, and can't meet a reused number."""
        self.mute = True
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the connection is gone already

    def fail(self, why: Exception) -> None:
        """Records why nothing more can be received. The first reason stays."""
        if self.broken is None:
            self.broken = why.with_traceback(None)

    def why(self) -> Exception:
        """The reason, to be raised. Each call makes a new exception: a raised one refers to the stack frames that it passed, and to views in them."""
        reason = self.broken or Broken("the server closed the connection")
        return type(reason)(*reason.args)

    def send(self, data: bytes, deadline: float | None) -> None:
        """Sends data, after the bytes that earlier calls left. With a deadline it waits for room in the socket; without, the next call sends the rest.

        Raises Broken only with a deadline.
        """
        if self.mute or self.broken is not None:
            if deadline is not None:
                raise self.why()
            return
        self._out += data
        while self._out:
            try:
                sent = self._sock.send(self._out, socket.MSG_NOSIGNAL)
                del self._out[:sent]
            except BlockingIOError:
                if deadline is None:
                    return
                if not self._poll(select.POLLOUT, deadline):
                    # The server has half a frame, so that nothing else can be sent over this connection.
                    self.hang_up()
                    raise Broken("the server reads nothing") from None
            except OSError as e:
                # No fail() here: answers that the server sent before it closed can still be received.
                self.mute = True
                self._out.clear()
                if deadline is not None:
                    raise Broken(f"send to the server: {e.strerror}") from None
                return

    @property
    def waits(self) -> bool:
        """Whether bytes wait for room in the socket."""
        return bool(self._out)

    def wait(self, seconds: float) -> bool:
        """Waits until bytes can be received, or sent if some wait to be sent. False after `seconds`."""
        events = select.POLLIN | (select.POLLOUT if self._out else 0)
        return self._poll(events, time.monotonic() + seconds)

    def receive(self) -> list[tuple[int, int, bytes]]:
        """The complete frames that have arrived, without a wait. Marks the connection as broken at the stream's end or at an invalid frame."""
        try:
            data = self._sock.recv(65536)
        except BlockingIOError:
            return []
        except OSError as e:
            self.fail(Broken(f"receive from the server: {e.strerror}"))
            return []
        if not data:
            self.fail(Broken("the server closed the connection"))
            return []
        self._in += data
        return self._frames()

    def _frames(self) -> list[tuple[int, int, bytes]]:
        frames, at = [], 0
        try:
            while len(self._in) - at >= protocol.HEADER.size:
                length, kind, request = protocol.header(self._in, at)
                end = at + 4 + length
                if end > len(self._in):
                    break
                frames.append((kind, request, bytes(self._in[at + protocol.HEADER.size : end])))
                at = end
        except ProtocolError as e:
            self.fail(e)
        del self._in[:at]
        return frames

    def receive_with_fd(self, deadline: float) -> tuple[int, bytes, int | None]:
        """The stream's first frame as (type, body, descriptor). The caller owns the descriptor. Raises Broken or ProtocolError."""
        fds: list[int] = []
        frames: list[tuple[int, int, bytes]] = []
        try:
            while not frames:
                if not self._poll(select.POLLIN, deadline):
                    raise Broken("the server did not answer HELLO")
                try:
                    data, extra, _, _ = self._sock.recvmsg(65536, socket.CMSG_SPACE(4 * 8), socket.MSG_CMSG_CLOEXEC)
                except BlockingIOError:
                    continue
                except OSError as e:
                    raise Broken(f"receive from the server: {e.strerror}") from None
                fds += _descriptors(extra)
                if not data:
                    raise Broken("the server closed the connection")
                self._in += data
                frames = self._frames()
                if self.broken is not None:
                    raise self.why()
            if len(frames) > 1 or len(fds) > 1:
                raise ProtocolError(f"the server answered HELLO with {len(frames)} frames and {len(fds)} descriptors")
            kind, _, body = frames[0]
            return kind, body, fds.pop() if fds else None
        finally:
            for fd in fds:
                os.close(fd)

    def _poll(self, events: int, deadline: float) -> bool:
        poll = select.poll()
        try:
            poll.register(self._sock, events)
        except ValueError:
            return True  # closed meanwhile: the next call on the socket reports it
        return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))


def _descriptors(extra: list[tuple[int, int, bytes]]) -> list[int]:
    fds: list[int] = []
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
