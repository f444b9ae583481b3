"""One socket to the server: frames out, frames in, the descriptor of HELLO. Knows no leases and no jobs.

Not locked: a Session lets one thread at a time write (under its lock) and one read (its reader).
"""

from __future__ import annotations

import os
import select
import socket
import time

from . import protocol
from .errors import ConnectionError, ProtocolError

_SUN_PATH = 107  # bytes of a path that sockaddr_un has room for, without the final NUL


class Broken(Exception):
    """The connection is no more, and another one may well work. Internal: callers reconnect or turn it into lcache.ConnectionError."""


class Connection:
    """A connected socket. A frame is (type, request, body)."""

    def __init__(self, path: str, deadline: float) -> None:
        """Connects; raises Broken when nobody listens, ConnectionError when the path can't be one of a server."""
        self.broken: Exception | None = None  # why nothing more can be received
        self.mute = False  # nothing more can be sent; answers may still be there
        # Of the reader, guarded by the Session's lock:
        self.reading = False
        self.asked: set[int] = set()
        self.unwanted: set[int] = set()
        self.answers: dict[int, tuple[int, bytes]] = {}
        self._out = bytearray()
        self._in = bytearray()
        self._sock = _dial(path, deadline)
        self._sock.setblocking(False)

    def close(self) -> None:
        """Closes the descriptor. In a forked child this tells the server nothing, since the parent has it open too."""
        if self.broken is None:
            self.broken = Broken("the connection was closed here")
        self.mute = True
        self._sock.close()

    def hang_up(self) -> None:
        """Ends the connection but not the descriptor, so that another thread that waits on it notices and can't meet a reused number."""
        self.mute = True
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is gone already, which is what was wanted

    def fail(self, why: Exception) -> None:
        """Notes why the connection is no more; the first reason stays."""
        if self.broken is None:
            self.broken = why.with_traceback(None)

    def why(self) -> Exception:
        """The reason, to be raised: a new exception each time, since one that is kept would keep the frames it went through, and views in them."""
        reason = self.broken or Broken("the server closed the connection")
        return type(reason)(*reason.args)

    def send(self, data: bytes, deadline: float | None) -> None:
        """Sends data after what is still to be sent. With a deadline it waits for room; without, what does not fit stays for the next call."""
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
                    # Half a frame can't be taken back, so the connection ends with it.
                    self.hang_up()
                    raise Broken("the server reads nothing") from None
            except OSError as e:
                # Not fail(): answers that came before the server closed can still be read.
                self.mute = True
                self._out.clear()
                if deadline is not None:
                    raise Broken(f"send to the server: {e.strerror}") from None
                return

    def wait(self, seconds: float) -> bool:
        """Waits until there is something to read (or, if frames wait to be sent, room to send)."""
        events = select.POLLIN | (select.POLLOUT if self._out else 0)
        return self._poll(events, time.monotonic() + seconds)

    def receive(self) -> list[tuple[int, int, bytes]]:
        """The complete frames that are there now. On the end of the stream or on garbage it marks the connection as broken."""
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
        """The first frame of the stream as (type, body, descriptor); the caller owns the descriptor."""
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
            return True  # closed meanwhile: the next call on the socket says so
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
        raise ConnectionError(f"connect to {path}: {getattr(e, 'strerror', None) or e}") from None
    finally:
        if parent is not None:
            os.close(parent)
