"""A Job's link to its server, whichever run of it is there: requests are sent again after restarts, and forked children connect anew."""

from __future__ import annotations

import os
import threading
import time
import weakref
from array import array
from typing import TYPE_CHECKING

from . import protocol
from .connection import Broken, Connection
from .errors import ConnectionError, Error, ProtocolError, TimeoutError
from .info import Info
from .memory import Map
from .orders import pieces
from .session import Late, Session, Ticket, error_of, sessions

if TYPE_CHECKING:
    from .embedded import Home

_CLIENT = "lcache-python 0.1"
_HANDSHAKE = 10.0  # seconds for HELLO and its answer
_GRACE = 2.0  # seconds: a server that waits as long as we do knows better what for, so its error may come first

_links: weakref.WeakSet[Link] = weakref.WeakSet()


class Link:
    """Connects when first used. home can start the server again. Threads may share it."""

    def __init__(self, path: str, timeout: float, home: Home | None = None) -> None:
        self.path, self.timeout, self.home = path, timeout, home
        self.session: Session | None = None
        self.forks = 0  # that this process is away from the one that made it
        # Orders pushed and not read to their end, by (epoch, rank): another server needs them again.
        self.pushed: dict[tuple[int, int], tuple[array[int], array[int]]] = {}
        self.orders = dict(self.pushed)  # the same, to be read by; a forked child keeps them, and does not push them
        self._known: Info | None = None
        self.closed = False
        self._connecting = threading.Lock()
        _links.add(self)

    def close(self) -> None:
        self.closed = True
        if self.session is not None:
            self.session.close()

    @property
    def info(self) -> Info:
        if self._known is None:
            self.attach(self.deadline())
        assert self._known is not None
        return self._known

    def deadline(self) -> float:
        return time.monotonic() + self.timeout

    def call(self, kind: int, body: bytes, what: str, answer: int) -> bytes:
        """The body of a request's answer, which must have that type."""
        ticket = Ticket(kind, body, what)
        got, body = self.finish(ticket)
        expect(ticket, got, answer)
        return body

    def early(self, ticket: Ticket) -> None:
        """Sends a request ahead of its need, if that can be done at once; else finish does."""
        session = self.session
        if session is not None and session.usable and not self.closed:
            try:
                session.send(ticket, self.deadline())
            except Broken:
                ticket.session = None

    def tell(self, kind: int, body: bytes) -> None:
        """Sends what has no answer and may get lost, if that can be done at once."""
        session = self.session
        if session is not None and session.usable and not self.closed:
            session.tell(kind, body)

    def finish(self, ticket: Ticket, deadline: float | None = None) -> tuple[int, bytes]:
        """The answer. Sends the request if it was not, and again after a broken connection: every request may be repeated."""
        deadline, pause = self.deadline() if deadline is None else deadline, 0.0
        try:
            while True:
                try:
                    if ticket.session is None:
                        self.attach(deadline, ticket.what).send(ticket, deadline)
                    assert ticket.session is not None
                    return ticket.session.wait(ticket, deadline + min(_GRACE, self.timeout / 10))
                except Broken as e:
                    ticket.session = None
                    if time.monotonic() + pause >= deadline:
                        raise ConnectionError(f"waited {self.timeout:g} s for {ticket.what} at {self.path}: {e}") from None
                    time.sleep(pause)  # a server that accepts and breaks off, again and again
                    pause = min(2 * pause + 0.01, 2.0)
        except Late:
            raise TimeoutError(f"waited {self.timeout:g} s for {ticket.what} from server pid {self.info.pid} at {self.path}") from None
        finally:
            # Does nothing after an answer; after anything else, Ctrl-C included, an answer that still comes is given back.
            if ticket.session is not None:
                ticket.session.drop(ticket)

    # The connection.

    def attach(self, deadline: float, what: str = "the server", patient: bool = True) -> Session:
        """The session, connected: again if need be, with growing pauses until the deadline."""
        session = self.session
        if session is not None and session.usable and not self.closed:
            return session
        if not self._connecting.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise TimeoutError(f"waited {self.timeout:g} s for {what} while another thread reconnects to {self.path}")
        try:
            pause = 0.01
            while True:
                if self.closed:
                    raise Error("the job is closed")
                session = self.session
                if session is not None and session.usable:
                    return session
                try:
                    return self._open(session, deadline)
                except Broken as e:
                    if not patient:
                        raise ConnectionError(f"{e} (is `lcache serve` running?)") from None
                    if time.monotonic() + pause >= deadline:
                        raise ConnectionError(f"waited {self.timeout:g} s for {what}: {e}") from None
                if self.home is not None:
                    self.home.revive()
                time.sleep(pause)
                pause = min(2 * pause, 1.0)
        finally:
            self._connecting.release()

    def _open(self, old: Session | None, deadline: float) -> Session:
        """One attempt: connect, HELLO, and the old session again or a new one."""
        deadline = min(deadline, time.monotonic() + _HANDSHAKE)
        connection, fd = Connection(self.path, deadline), None
        try:
            token = old.info.token if old is not None else None
            connection.send(protocol.frame(protocol.HELLO, 1, protocol.hello(_CLIENT, token)), deadline)
            kind, body, fd = connection.receive_with_fd(deadline)
            if kind == protocol.A_ERROR:
                raise error_of(body, f"connect to {self.path}")
            if kind != protocol.A_JSON or fd is None:
                raise ProtocolError(f"the server at {self.path} answered HELLO with type {kind} and {'no' if fd is None else 'a'} descriptor")
            info = Info.of(protocol.read_json(body))
            if self._known is not None and info.fingerprint != self._known.fingerprint:
                raise Error(f"the server at {self.path} now has another dataset: fingerprint {info.fingerprint}, it was {self._known.fingerprint}")
            if old is not None and (old.info.server, old.info.token) == (info.server, info.token):
                old.replace(connection)
                return old
            session = Session(info, Map(fd), connection)
        except BaseException:
            connection.close()
            raise
        finally:
            if fd is not None:
                os.close(fd)
        try:
            self._push_again(session, deadline)
        except BaseException:
            session.close()
            raise
        if old is not None:
            old.close()
        self._known, self.session = info, session
        return session

    def _push_again(self, session: Session, deadline: float) -> None:
        for (epoch, rank), (sizes, flat) in list(self.pushed.items()):
            for ticket in pieces(epoch, rank, sizes, flat):
                session.send(ticket, deadline)
                try:
                    expect(ticket, session.wait(ticket, deadline)[0], protocol.A_OK)
                except Late:
                    raise Broken(f"the server did not answer to {ticket.what}") from None

    def _forked(self) -> None:
        self.forks += 1
        self._connecting = threading.Lock()
        self.session = None
        self.pushed = {}


def expect(ticket: Ticket, kind: int, answer: int) -> None:
    if kind != answer:
        raise ProtocolError(f"{ticket.what}: the server's answer has type {kind}, not {answer}")


def _after_fork() -> None:
    for session in list(sessions):
        session.forked()
    for link in list(_links):
        link._forked()


os.register_at_fork(after_in_child=_after_fork)
