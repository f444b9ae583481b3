"""One server run as this process sees it: its map, the connection to it, the leases held, and who waits for which answer.

A finalizer may run in any thread at any bytecode, also in one that holds the lock. So whatever ends (an anchor, the wish for an answer,
the session) is only noted, in deques and flags, and is settled by whoever gets the lock without waiting for it: the
finalizer itself, or the one that holds it, who looks again after letting go. At the interpreter's end nothing is settled any more: modules
may be half gone, and leases end with their process.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable

from . import protocol
from .connection import Broken, Connection
from .errors import ArgumentError, ConnectionError, Error, ProtocolError, SampleError, TimeoutError
from .info import Info
from .memory import Map

sessions: weakref.WeakSet[Session] = weakref.WeakSet()

# A reader looks up this often, in seconds. Nothing depends on it but a RELEASE that did not fit the socket while nobody else sent.
_SLICE = 1.0


class Late(Exception):
    """A wait reached its deadline. Internal: the caller knows what it waited for."""


class NoRoom(TimeoutError):
    """Leases leave no room for the request's samples, but the server lends them in parts. Internal: the caller copies them."""


class LoanOver(Error):
    """The server needed the memory before its bytes were copied. Internal: the caller asks for them again."""


class Ticket:
    """A request, so that it can be sent again over another connection; `what` is for messages."""

    __slots__ = ("body", "connection", "kind", "request", "session", "what")

    def __init__(self, kind: int, body: bytes, what: str) -> None:
        self.kind, self.body, self.what = kind, body, what
        self.session: Session | None = None
        self.connection: Connection | None = None
        self.request = 0


class Session:
    def __init__(self, info: Info, memory: Map, connection: Connection) -> None:
        self.info, self.memory = info, memory
        self.foreign = False  # in a forked child, of its parent's sessions
        self._ended: deque[tuple[int, int | None]] = deque()  # leases, with bytes if there was an anchor
        self._dropped: deque[tuple[Connection, int]] = deque()  # answers that nobody wants any more
        self._told: deque[bytes] = deque()  # frames that have no answer
        self._closing = False
        self._new_lock()
        # The lock guards the fields that follow, and all of the connection but reading from it.
        self._connection = connection
        self._request = 0
        self._unsent: list[int] = []  # leases to release when there is a connection again
        self._held = 0  # bytes pinned by live anchors
        self._live = 0  # anchors
        self._gave_up = False  # closed, and no answer is wanted any more
        self._over = False  # closed, and nothing refers to the map
        sessions.add(self)

    def _new_lock(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)

    @property
    def usable(self) -> bool:
        """Whether a request can be sent; if not, a new connection is due."""
        return self._connection.broken is None and not self._connection.mute

    @property
    def held(self) -> int:
        """Bytes of shared memory pinned by batches that something still refers to."""
        self._settle()
        return self._held

    def send(self, ticket: Ticket, deadline: float) -> None:
        """Sends the request. Raises Broken if a new connection is due."""
        try:
            with self._lock:
                self._drain()
                if self._closing:
                    raise Error("the job is closed")
                connection = self._connection
                self._request = self._request % 0xFFFFFFFF + 1
                ticket.session, ticket.connection, ticket.request = self, connection, self._request
                connection.asked.add(self._request)
                connection.send(protocol.frame(ticket.kind, self._request, ticket.body), deadline)
        finally:
            self._settle()

    def wait(self, ticket: Ticket, deadline: float) -> tuple[int, bytes]:
        """The answer as (type, body), not an ERROR: that is raised. Raises Broken if the request must be sent again, Late at the deadline."""
        connection, request = ticket.connection, ticket.request
        assert connection is not None
        while True:
            with self._lock:
                self._drain()
                answer = connection.answers.pop(request, None)
                if answer is not None:
                    break
                if self._closing:
                    raise Error(f"the job was closed while waiting for {ticket.what}")
                if connection.broken is not None:
                    raise connection.why()
                left = deadline - time.monotonic()
                if left <= 0:
                    raise Late
                if connection.reading:
                    self._changed.wait(min(left, _SLICE))
                    continue
                connection.reading = True
            self._read(connection, min(left, _SLICE))
        self._settle()
        if answer[0] == protocol.A_ERROR:
            raise error_of(answer[1], ticket.what)
        return answer

    def _read(self, connection: Connection, seconds: float) -> None:
        """The reader's turn: one thread at a time, and without the lock while it waits."""
        frames: list[tuple[int, int, bytes]] = []
        try:
            frames = connection.receive()
            if not frames and connection.broken is None and connection.wait(seconds):
                frames = connection.receive()
        finally:
            with self._lock:
                connection.reading = False
                self._dispatch(connection, frames)
                if connection is not self._connection or self._over:
                    connection.close()
                else:
                    connection.send(b"", None)
                self._changed.notify_all()

    def _dispatch(self, connection: Connection, frames: list[tuple[int, int, bytes]]) -> None:
        for kind, request, body in frames:
            if kind == protocol.A_ERROR:
                error = error_of(body, "")
                if request == 0 or isinstance(error, (Broken, ConnectionError, ProtocolError)):
                    connection.fail(error)
            if request in connection.asked:
                connection.asked.remove(request)
                connection.answers[request] = (kind, body)
            elif request in connection.unwanted:
                connection.unwanted.remove(request)
                self._discard(kind, body)
            elif request != 0 or kind != protocol.A_ERROR:
                connection.fail(ProtocolError(f"the server answered request {request}, which was not asked"))

    def _discard(self, kind: int, body: bytes) -> None:
        if kind == protocol.A_BATCH:
            lease = protocol.read_lease(body)
            if lease is not None:
                self._ended.append((lease, None))

    def take(self, columns: protocol.Columns) -> memoryview | None:
        """Makes the lease of columns ours: a view of the map that keeps it while anything refers to it. None if that is beyond the
        credits: the caller copies, and ends the lease."""
        size = columns.pinned
        try:
            with self._lock:
                self._drain()
                if 0 < self.info.credit_bytes < self._held + size and self._live:
                    return None
                self._held += size
                self._live += 1
                return self.memory.anchor(self.end, columns.lease, size)
        finally:
            self._settle()

    def copies(self, columns: protocol.Columns) -> list[memoryview]:
        """Private copies of the samples. Under the lock, so that another thread's close() does not unmap them meanwhile."""
        try:
            with self._lock:
                if self._over:
                    raise Error("the job is closed")
                return [self.memory.copy(offset, length) for offset, length in zip(columns.offsets, columns.lengths)]
        finally:
            self._settle()

    def end(self, lease: int, size: int | None = None) -> None:
        """Ends a lease; safe in finalizers."""
        if not self.foreign:
            self._ended.append((lease, size))
            self._settle()

    def drop(self, ticket: Ticket) -> None:
        """The answer is not wanted any more, and its lease ends as soon as it comes; safe in finalizers."""
        if ticket.connection is not None and not self.foreign:
            self._dropped.append((ticket.connection, ticket.request))
            self._settle()

    def tell(self, kind: int, body: bytes) -> None:
        """Sends what has no answer, or loses it with the connection; safe in finalizers."""
        if not self.foreign:
            self._told.append(protocol.frame(kind, 0, body))
            self._settle()

    def close(self) -> None:
        """No more requests. The connection and the map stay until nothing refers to the map; safe in finalizers."""
        self._closing = True
        self._settle()

    def replace(self, connection: Connection) -> None:
        """Goes on over another connection to the same server, which kept the leases."""
        with self._lock:
            old, self._connection = self._connection, connection
            while not old.reading and old.broken is None:
                frames = old.receive()  # what came before the end; a live reader gets it by itself
                if not frames:
                    break
                self._dispatch(old, frames)
            if old.reading:
                old.hang_up()
            else:
                old.close()
            unsent, self._unsent = self._unsent, []
            self._ended.extend((lease, None) for lease in unsent)
            self._changed.notify_all()
        self._settle()

    def forked(self) -> None:
        """In a forked child: the connection and the leases are the parent's. Nothing is sent, the map stays for views that exist."""
        self.foreign = True
        self._new_lock()
        self._connection.close()

    def _settle(self, leaving: Callable[[], bool] = sys.is_finalizing) -> None:
        if leaving():
            return
        while self._ended or self._dropped or self._told or (self._closing and not (self._gave_up and (self._live or self._over))):
            if self.foreign or not self._lock.acquire(False):
                return
            try:
                self._drain()
            finally:
                self._lock.release()

    def _drain(self) -> None:
        """Settles what was noted. The lock is held."""
        cancelled = []
        while self._dropped:
            connection, request = self._dropped.popleft()
            if request in connection.answers:
                self._discard(*connection.answers.pop(request))
            elif request in connection.asked:
                connection.asked.remove(request)
                connection.unwanted.add(request)
                if connection is self._connection:
                    cancelled.append(request)
        if cancelled:
            self._connection.send(protocol.frame(protocol.CANCEL, 0, protocol.cancel(cancelled)), None)
        while self._told:
            frame = self._told.popleft()
            if self.usable and not self._gave_up:
                self._connection.send(frame, None)
        if self._closing and not self._gave_up:
            self._gave_up = True
            self._give_up(self._connection)
        while self._ended:
            lease, size = self._ended.popleft()
            if size is not None:
                self._held -= size
                self._live -= 1
            self._unsent.append(lease)
        if self._unsent and self.usable:
            leases, self._unsent = self._unsent, []
            self._connection.send(protocol.frame(protocol.RELEASE, 0, protocol.release(leases)), None)
        if self._closing and not self._live and not self._over:
            self._over = True
            self._connection.send(protocol.frame(protocol.BYE, 0), None)
            if self._connection.reading:
                self._connection.hang_up()
            else:
                self._connection.close()
            self.memory.unmap()

    def _give_up(self, connection: Connection) -> None:
        """After close(): no answer is wanted."""
        if connection.asked:
            connection.send(protocol.frame(protocol.CANCEL, 0, protocol.cancel(list(connection.asked))), None)
        connection.unwanted |= connection.asked
        connection.asked.clear()
        while connection.answers:
            self._discard(*connection.answers.popitem()[1])


def error_of(body: bytes, what: str) -> Exception:
    """The exception of an ERROR answer: Broken when the server goes away and another may come."""
    try:
        kind, message, sample = protocol.read_error(body)
    except ProtocolError as e:
        return e
    text = f"{what}: {message}" if what else message
    if kind == "sample":
        return SampleError(text, sample, message)
    if kind == "closing":
        return Broken(text)
    kinds = {"timeout": TimeoutError, "argument": ArgumentError, "protocol": ProtocolError, "denied": ConnectionError, "room": NoRoom, "late": LoanOver}
    return kinds.get(kind, Error)(text)
