"""A Job's link to its server. It survives restarts: it sends requests again after a broken connection. A forked child makes its own connection."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable

from ..errors import ConnectionError, Error, ProtocolError, TimeoutError
from . import protocol, releases
from .connection import Broken, Connection
from .embedded import Home
from .info import Info
from .memory import Map
from .orders import Order, push_requests
from .server_errors import error_of
from .session import Late, Request, Session, sessions

_CLIENT = "lcache-python 0.1"
_HANDSHAKE = 10.0  # seconds for HELLO and its answer
_GRACE = 2.0  # seconds after the deadline in which an answer still counts: a server with the same deadline gives the more precise error

_links: weakref.WeakSet[Link] = weakref.WeakSet()


class Link:
    """Connects at the first use. Threads may share it."""

    def __init__(self, path: str, timeout: float, home: Home | None = None) -> None:
        """path is the server's socket, timeout the deadline of every wait in seconds. home can start the server again."""
        self.path, self.timeout, self.home = path, timeout, home
        self.session: Session | None = None
        self.forks = 0  # forks between the process that made this link and this process
        # Pushed orders that were not yet read to their end, by (epoch, rank). They are pushed again to a restarted server.
        self.pushed: dict[tuple[int, int], Order] = {}
        # The same orders, for reading their epochs. A forked child keeps them, and does not push them.
        self.orders: dict[tuple[int, int], Order] = {}
        self.pushing = threading.RLock()  # one order is pushed at a time
        self.closed = False
        self.token: str | None = None  # of the job that all requests belong to; None: the server's own
        self.first: Callable[[float], None] | None = None  # called before a request, with its deadline: sends the reports that the answer may depend on
        self.importance: bytes | None = None  # the job's IMPORTANCE request; it is sent again after a restart of the server
        self._known: Info | None = None  # None: not yet connected
        self._connecting: object | None = None  # the call that connects; None: no thread connects
        _links.add(self)

    def close(self) -> None:
        """Ends the session. Later calls raise Error."""
        self.closed = True
        if self.session is not None:
            self.session.close()

    def learn(self, other: Link) -> None:
        """Copies what another link knows of the same server, which saves a connect."""
        self._known = other._known

    def rename(self, token: str | None) -> None:
        """Sets the job that later requests belong to. Batches of earlier requests stay valid."""
        if token != self.token:
            if self.session is not None:
                self.session.close()
            self.session, self.token = None, token

    @property
    def info(self) -> Info:
        """The server's description of itself at the last connect. Connects if there was none."""
        if self._known is None:
            self.attach(self.deadline())
        assert self._known is not None
        return self._known

    def deadline(self) -> float:
        """The deadline of a wait that begins now, in seconds of time.monotonic."""
        return time.monotonic() + self.timeout

    def call(self, kind: int, body: bytes, what: str, answer: int) -> bytes:
        """Sends a request and returns the body of its answer, which must have the type `answer`. what names the request in errors."""
        if self.first is not None:
            self.first(self.deadline())
        request = Request(kind, body, what)
        got, body = self.answer(request)
        require_kind(request, got, answer)
        return body

    def send_early(self, request: Request) -> None:
        """Sends a request early, if it need not wait. Otherwise answer() sends it."""
        session = self.session
        if session is not None and session.usable and not self.closed:
            try:
                session.send(request)
            except Broken:
                request.session = None

    def notify(self, kind: int, body: bytes) -> None:
        """Sends a frame without an answer, if it need not wait. A broken connection loses the frame."""
        session = self.session
        if session is not None and session.usable and not self.closed:
            session.notify(kind, body)

    def answer(self, request: Request, deadline: float | None = None) -> tuple[int, bytes]:
        """Waits for a request's answer, and returns (type, body).

        Sends the request unless send_early has. Sends it again after a broken connection: every request may be repeated.
        """
        deadline, pause = self.deadline() if deadline is None else deadline, 0.0
        try:
            while True:
                try:
                    if request.session is None:
                        self.attach(deadline, request.what).send(request)
                    assert request.session is not None
                    return request.session.wait(request, deadline + min(_GRACE, self.timeout / 10))
                except Broken as e:
                    request.session = None
                    if time.monotonic() + pause >= deadline:
                        raise ConnectionError(f"waited {self.timeout:g} s for {request.what} at {self.path}: {e}") from None
                    time.sleep(pause)  # the server may accept and close each connection
                    pause = min(2 * pause + 0.01, 2.0)
        except BaseException as e:
            if request.session is not None:
                request.session.drop(request)  # releases the lease of a late answer, even if a traceback keeps the request
            if isinstance(e, Late):
                raise TimeoutError(f"waited {self.timeout:g} s for {request.what} from server pid {self.info.pid} at {self.path}: see lcache status") from None
            raise

    # The connection.

    def attach(self, deadline: float, what: str = "the server", patient: bool = True) -> Session:
        """The session, connected. what names the purpose in errors.

        patient: tries again, with growing pauses, until the deadline. Raises ConnectionError without a server, Error after close().
        """
        session = self.session
        if session is not None and session.usable and not self.closed:
            return session
        call, pause = object(), 0.01
        try:
            while True:
                if self.closed:
                    raise Error("use a closed job: make another one with lcache.open or lcache.connect")
                session = self.session
                if session is not None and session.usable:
                    return session
                if self._connecting is None:
                    self._connecting = call
                if self._connecting is not call:
                    if time.monotonic() >= deadline:
                        raise TimeoutError(f"waited {self.timeout:g} s for {what} while another thread reconnects to {self.path}")
                    time.sleep(0.01)
                    continue
                try:
                    return self._open(session, deadline)
                except Broken as e:
                    if not patient:
                        raise ConnectionError(f"{e} (is `lcache serve` running?)") from None
                    if time.monotonic() + pause >= deadline:
                        raise ConnectionError(f"waited {self.timeout:g} s for {what}: {e}") from None
                if self.home is not None:
                    self.home.revive(deadline)
                time.sleep(pause)
                pause = min(2 * pause, 1.0)
        finally:
            if self._connecting is call:
                self._connecting = None

    def _open(self, old: Session | None, deadline: float) -> Session:
        """One attempt: connects and sends HELLO. Continues the old session if the server kept it, otherwise begins a new one."""
        if old is not None and old.closed:
            old = None
        deadline = min(deadline, time.monotonic() + _HANDSHAKE)
        connection, fd = Connection(self.path, deadline, found=self.home is not None), None
        try:
            token = old.info.token if old is not None else None
            connection.send(protocol.frame(protocol.HELLO, 1, protocol.hello(_CLIENT, token)))
            kind, body, fd = connection.receive_with_fd(deadline)
            if kind == protocol.A_ERROR:
                raise error_of(body, f"connect to {self.path}", self.home is not None)
            if kind != protocol.A_JSON or fd is None:
                raise ProtocolError(f"the server at {self.path} answered HELLO with type {kind} and {'no' if fd is None else 'a'} descriptor")
            info = Info.of(protocol.read_json(body))
            if self._known is not None and info.fingerprint != self._known.fingerprint:
                changed = f"fingerprint {info.fingerprint}, was {self._known.fingerprint}"
                raise Error(f"the server at {self.path} now has another dataset ({changed}): start the program again")
            if self.token is not None and "jobs" in info.features:
                connection.job = _named_job(connection, self.token, deadline, self.home is not None)
            if old is not None and (old.info.server, old.info.token) == (info.server, info.token):
                old.replace(connection)
                return old
            session = Session(info, Map(fd), connection, self.home is not None)
        except BaseException:
            connection.close()
            raise
        finally:
            if fd is not None:
                os.close(fd)
        try:
            self._push_again(session, deadline)
            self._ask_again(session, deadline)
        except BaseException:
            session.close()
            raise
        releases.watch(session, session.settle)
        self._known, self.session = info, session
        if old is not None:
            old.retire()
        return session

    def _push_again(self, session: Session, deadline: float) -> None:
        """Pushes again the orders that an earlier run of the server had."""
        for (epoch, rank), order in list(self.pushed.items()):
            for request in push_requests(epoch, rank, order):
                session.send(request)
                try:
                    require_kind(request, session.wait(request, deadline)[0], protocol.A_OK)
                except Late:
                    raise Broken(f"the server did not answer to {request.what}") from None

    def _ask_again(self, session: Session, deadline: float) -> None:
        """Sends again the IMPORTANCE request that an earlier run of the server had."""
        if self.importance is not None:
            request = Request(protocol.IMPORTANCE, self.importance, "importance")
            session.send(request)
            try:
                require_kind(request, session.wait(request, deadline)[0], protocol.A_JSON)
            except Late:
                raise Broken("the server did not answer IMPORTANCE") from None

    def forked(self) -> None:
        """In a forked child: the session stays the parent's, and only the parent pushes its orders again."""
        self.forks += 1
        self._connecting, self.pushing = None, threading.RLock()
        self.session = None
        self.pushed = {}


def _named_job(connection: Connection, token: str, deadline: float, embedded: bool) -> int:
    """The number of a job on a new connection, which has no other requests."""
    connection.send(protocol.frame(protocol.JOB, 2, protocol.job(token)))
    while (frame := connection.frame()) is None:
        if connection.broken is not None:
            raise connection.why()
        if not connection.wait(deadline - time.monotonic()):
            raise Broken("the server did not answer JOB")
        connection.receive()
    kind, number, body, connection.received = frame
    if kind == protocol.A_ERROR:
        raise error_of(body, f"job {token!r}", embedded)
    count = 1 if connection.frame() is None else 2
    if count > 1 or kind != protocol.A_JSON or number != 2:
        raise ProtocolError(f"the server answered JOB with {count} frames, the first of type {kind}")
    return protocol.read_job(body)


def require_kind(request: Request, kind: int, expected: int) -> None:
    """Raises ProtocolError unless an answer has the expected type."""
    if kind != expected:
        raise ProtocolError(f"{request.what}: the server's answer has type {kind}, not {expected}")


def _after_fork() -> None:
    for session in list(sessions):
        session.forked()
    for link in list(_links):
        link.forked()


os.register_at_fork(after_in_child=_after_fork)
