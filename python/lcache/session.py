"""One run of a server as this process sees it: its map, the connection to it, the leases held, and the answers awaited.

A finalizer may run in any thread at any bytecode, also in a thread that holds the lock. So an ending anchor, an unwanted answer or
a closed session is only recorded, in deques and flags. The next thread that gets the lock without waiting settles the records: the
finalizer's own thread, or the thread that holds the lock, which looks again after it lets go. At the interpreter's end nothing is settled:
modules may be half gone, and leases end with their process.
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
from .errors import ArgumentError, ConnectionError, Error, ProtocolError, RefusedError, TimeoutError, of_sample
from .info import Info
from .memory import Map
from .program_errors import in_python

sessions: weakref.WeakSet[Session] = weakref.WeakSet()

# Seconds of one wait for an answer. It bounds the delay of a RELEASE that did not fit the socket while no other thread sent.
_SLICE = 1.0


class Late(Exception):
    """A wait reached its deadline. Internal: the caller knows the purpose of the wait."""


class NoRoom(TimeoutError):
    """Leases leave no room for the request's samples, but the server lends them in parts. Internal: the caller copies them."""


class LoanOver(Error):
    """The server needed the memory before its bytes were copied. Internal: the caller asks for them again."""


class Request:
    """A request that can be sent again over another connection. `what` names it in messages."""

    __slots__ = ("body", "connection", "kind", "number", "session", "what")

    def __init__(self, kind: int, body: bytes, what: str) -> None:
        self.kind, self.body, self.what = kind, body, what
        self.session: Session | None = None  # the session that sent the request; None: not sent
        self.connection: Connection | None = None
        self.number = 0  # the request's number on that connection


class Session:
    """Threads may share it. Each thread sends under the lock, and one thread at a time reads for all of them."""

    def __init__(self, info: Info, memory: Map, connection: Connection, embedded: bool = False) -> None:
        """embedded: lcache.open started the server, so that its flags are arguments of this program."""
        self.info, self.memory, self.embedded = info, memory, embedded
        self.inherited = False  # this process is a forked child, and the session belongs to the parent
        self._ended_leases: deque[tuple[int, int | None]] = deque()  # (lease, bytes); None: the lease had no anchor
        self._unwanted: deque[tuple[Connection, int]] = deque()  # numbers of requests whose answers are no longer wanted
        self._unanswered: deque[tuple[int, bytes]] = deque()  # (type, body) of frames without an answer, to be sent
        self._closing = False
        self._replaced = False  # closed, because another run of the server takes the requests
        self._new_lock()
        # The lock guards the fields that follow, and all of the connection but reading from it.
        self._connection = connection
        self._number = 0  # of the last request
        self._unsent: list[int] = []  # leases to release when there is a connection again
        self._held = 0  # bytes pinned by live anchors
        self._anchors = 0  # live anchors
        self._cancelled = False  # closed, and the server was told that no answer is wanted
        self._finished = False  # closed, and the map is unmapped
        sessions.add(self)

    def _new_lock(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)

    @property
    def usable(self) -> bool:
        """Whether a request can be sent. Otherwise a new connection is due."""
        return self._connection.broken is None and not self._connection.mute

    @property
    def held(self) -> int:
        """Bytes of shared memory that live batches, views, arrays and tensors pin."""
        self._settle()
        return self._held

    def send(self, request: Request, deadline: float) -> None:
        """Sends the request. Raises Broken if a new connection is due, Error if the session is closing."""
        try:
            with self._lock:
                self._drain()
                if self._closing:
                    raise Error("the job is closed")
                connection = self._connection
                self._number = self._number % 0xFFFFFFFF + 1
                request.session, request.connection, request.number = self, connection, self._number
                connection.asked.add(self._number)
                connection.send(protocol.frame(request.kind, self._number, request.body, connection.job), deadline)
        finally:
            self._settle()

    def wait(self, request: Request, deadline: float) -> tuple[int, bytes]:
        """Waits for the answer, and returns (type, body). An ERROR answer is raised.

        Raises Broken if the request must be sent again, Late at the deadline.
        """
        connection, number = request.connection, request.number
        assert connection is not None
        while True:
            with self._lock:
                self._drain()
                answer = connection.answers.pop(number, None)
                if answer is not None:
                    break
                if self._replaced:
                    raise Broken("the server was started again")
                if self._closing:
                    raise Error(f"the job was closed while waiting for {request.what}")
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
            raise error_of(answer[1], request.what, self.embedded)
        return answer

    def _read(self, connection: Connection, seconds: float) -> None:
        """Reads for all threads, without the lock during the wait. The caller has set connection.reading."""
        frames: list[tuple[int, int, bytes]] = []
        try:
            frames = connection.receive()
            if not frames and connection.broken is None and connection.wait(seconds):
                frames = connection.receive()
        finally:
            with self._lock:
                connection.reading = False
                self._dispatch(connection, frames)
                if connection is not self._connection or self._finished:
                    connection.close()
                else:
                    connection.send(b"", None)
                self._changed.notify_all()

    def _dispatch(self, connection: Connection, frames: list[tuple[int, int, bytes]]) -> None:
        """Gives each frame to its request. An answer to an unknown request breaks the connection."""
        for kind, number, body in frames:
            if kind == protocol.A_ERROR:
                error = error_of(body, "")
                if number == 0 or isinstance(error, (Broken, ConnectionError, ProtocolError)):
                    connection.fail(error)
            if number in connection.asked:
                connection.asked.remove(number)
                connection.answers[number] = (kind, body)
            elif number in connection.unwanted:
                connection.unwanted.remove(number)
                self._discard(kind, body)
            elif number != 0 or kind != protocol.A_ERROR:
                connection.fail(ProtocolError(f"the server answered request {number}, which was not asked"))

    def _discard(self, kind: int, body: bytes) -> None:
        """Ends the lease of an unwanted answer."""
        if kind in (protocol.A_BATCH, protocol.A_SERVED):
            lease = protocol.read_lease(body)
            if lease is not None:
                self._ended_leases.append((lease, None))

    def take(self, columns: protocol.Columns) -> memoryview | None:
        """A view of the whole map that keeps the lease of columns while anything refers to the view.

        None beyond the credits: the caller copies the samples and ends the lease.
        """
        size = columns.pinned
        try:
            with self._lock:
                self._drain()
                if 0 < self.info.credit_bytes < self._held + size and self._anchors:
                    return None
                self._held += size
                self._anchors += 1
                return self.memory.anchor(self.end, columns.lease, size)
        finally:
            self._settle()

    def copies(self, columns: protocol.Columns) -> list[memoryview]:
        """Private copies of the samples. The lock is held, so that another thread's close() does not unmap them meanwhile."""
        try:
            with self._lock:
                if self._finished:
                    raise Error("the job is closed")
                return [self.memory.copy(offset, length) for offset, length in zip(columns.offsets, columns.lengths)]
        finally:
            self._settle()

    def end(self, lease: int, size: int | None = None) -> None:
        """Ends a lease. size is what its anchor pinned, in bytes; None: it had no anchor. Safe in finalizers."""
        if not self.inherited:
            self._ended_leases.append((lease, size))
            self._settle()

    def drop(self, request: Request) -> None:
        """Drops a request: the lease of an answer that still comes ends at once. Safe in finalizers."""
        if request.connection is not None and not self.inherited:
            self._unwanted.append((request.connection, request.number))
            self._settle()

    def tell(self, kind: int, body: bytes) -> None:
        """Sends a frame without an answer. A broken connection loses the frame. Safe in finalizers."""
        if not self.inherited:
            self._unanswered.append((kind, body))
            self._settle()

    def tell_now(self, frames: list[tuple[int, bytes]], deadline: float | None) -> bool:
        """Sends frames without an answer if the socket takes them at once, or with a deadline when it does. Whether they were sent."""
        if self.inherited or not self._lock.acquire(deadline is not None):
            return False
        try:
            connection = self._connection
            connection.send(b"", None)
            if deadline is None and connection.waits:
                return False
            if not self.usable or self._closing:
                return False
            connection.send(b"".join([protocol.frame(kind, 0, body, connection.job) for kind, body in frames]), deadline)
            return True
        except Broken:
            return False
        finally:
            self._lock.release()
            self._settle()

    def close(self) -> None:
        """Refuses further requests. The connection and the map stay while anything refers to the map. Safe in finalizers."""
        self._closing = True
        self._settle()

    def retire(self) -> None:
        """Closes the session of a server that has gone. What waits for an answer is to be asked for again."""
        self._replaced = True
        self.close()

    def replace(self, connection: Connection) -> None:
        """Goes on over another connection to the same run of the server, which kept the leases."""
        with self._lock:
            old, self._connection = self._connection, connection
            while not old.reading and old.broken is None:
                frames = old.receive()  # answers that came before the end; a reading thread receives them itself
                if not frames:
                    break
                self._dispatch(old, frames)
            if old.reading:
                old.hang_up()
            else:
                old.close()
            unsent, self._unsent = self._unsent, []
            self._ended_leases.extend((lease, None) for lease in unsent)
            self._changed.notify_all()
        self._settle()

    def forked(self) -> None:
        """In a forked child: the connection and the leases are the parent's. Nothing is sent, and the map stays for views that exist."""
        self.inherited = True
        self._new_lock()
        self._connection.close()

    def _settle(self, leaving: Callable[[], bool] = sys.is_finalizing) -> None:
        """Settles the records, unless another thread holds the lock: that thread settles them. The default of `leaving` outlives the module's names."""
        if leaving():
            return
        while self._has_records():
            if self.inherited or not self._lock.acquire(False):
                return
            try:
                self._drain()
            finally:
                self._lock.release()

    def _has_records(self) -> bool:
        if self._ended_leases or self._unwanted or self._unanswered:
            return True
        return self._closing and not (self._cancelled and (self._anchors or self._finished))

    def _drain(self) -> None:
        """Settles the records. The lock is held."""
        self._cancel_unwanted()
        while self._unanswered:
            kind, body = self._unanswered.popleft()
            if self.usable and not self._cancelled:
                self._connection.send(protocol.frame(kind, 0, body, self._connection.job), None)
        if self._closing and not self._cancelled:
            self._cancelled = True
            self._cancel_all(self._connection)
        while self._ended_leases:
            lease, size = self._ended_leases.popleft()
            if size is not None:
                self._held -= size
                self._anchors -= 1
            self._unsent.append(lease)
        if self._unsent and self.usable:
            leases, self._unsent = self._unsent, []
            self._connection.send(protocol.frame(protocol.RELEASE, 0, protocol.release(leases)), None)
        if self._closing and not self._anchors and not self._finished:
            self._finished = True
            self._connection.send(protocol.frame(protocol.BYE, 0), None)
            if self._connection.reading:
                self._connection.hang_up()
            else:
                self._connection.close()
            self.memory.unmap()

    def _cancel_unwanted(self) -> None:
        """Discards the answers of dropped requests, and tells the server of those that are still to come."""
        cancelled = []
        while self._unwanted:
            connection, number = self._unwanted.popleft()
            if number in connection.answers:
                self._discard(*connection.answers.pop(number))
            elif number in connection.asked:
                connection.asked.remove(number)
                connection.unwanted.add(number)
                if connection is self._connection:
                    cancelled.append(number)
        if cancelled:
            self._connection.send(protocol.frame(protocol.CANCEL, 0, protocol.cancel(cancelled)), None)

    def _cancel_all(self, connection: Connection) -> None:
        """After close(): discards every answer that is there or still to come."""
        if connection.asked:
            connection.send(protocol.frame(protocol.CANCEL, 0, protocol.cancel(list(connection.asked))), None)
        connection.unwanted |= connection.asked
        connection.asked.clear()
        while connection.answers:
            self._discard(*connection.answers.popitem()[1])


def error_of(body: bytes, what: str, embedded: bool = False) -> Exception:
    """The exception of an ERROR answer. Broken: the server goes away, and another may come. what names the request, "" none.

    embedded: flags that the server names are arguments of lcache.open. Those of a server that was started by hand stay flags.
    """
    try:
        kind, message, sample = protocol.read_error(body)
    except ProtocolError as e:
        return e
    if embedded:
        message = in_python(message)
    text = f"{what}: {message}" if what else message
    if kind == "sample":
        return of_sample(protocol.read_reason(body))(text, sample, message)
    if kind == "closing":
        return Broken(text)
    kinds = {"timeout": TimeoutError, "argument": ArgumentError, "protocol": ProtocolError, "denied": RefusedError, "room": NoRoom, "late": LoanOver}
    return kinds.get(kind, Error)(text)
