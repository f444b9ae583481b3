"""The client's side of one run of a server: the memory map, the connection, the held leases, and the awaited answers.

A session survives an interrupt, which is a signal's handler that raises, after any call of the main thread or at the next iteration of a loop. An object
owns whatever the session must release: an anchor owns a lease, and before there is one, a Request owns its answer. If an interrupted call drops such an
object, it is released like any other. Locks are taken only by `with`, and fields that must change together are set by statements without a call between them.

An object may end in any thread, between any two bytecodes. So its end is only recorded, in a deque. The next call settles the records, and so does a
thread that the end wakes. Nothing is settled when the interpreter ends, because modules may be half gone, and leases end with their process.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from ..errors import ConnectionError, Error, ProtocolError
from . import protocol, releases
from .connection import Broken, Connection
from .info import Info
from .memory import Map
from .server_errors import error_of

sessions: weakref.WeakSet[Session] = weakref.WeakSet()

_BATCHES = (protocol.A_BATCH, protocol.A_SERVED)  # answers with a lease

# Seconds of one wait for an answer. It bounds two delays: that of a RELEASE that did not fit the socket while no other thread sent, and that of a thread
# whose answer was received by a thread that was then interrupted.
_SLICE = 1.0


class Late(Exception):
    """A wait reached its deadline. Internal: the caller's error names the awaited event."""


class Request:
    """A request that can be sent again over another connection. `what` names it in messages. It owns the lease of its answer until take() takes it."""

    __slots__ = ("__weakref__", "answer", "body", "kind", "session", "what")

    def __init__(self, kind: int, body: bytes, what: str) -> None:
        self.kind, self.body, self.what = kind, body, what
        self.session: Session | None = None  # the session that sent the request; None: not sent
        self.answer: Answer | None = None


class Answer(weakref.ref[Request]):
    """The answer to a request, before or after it arrives. It is a weak reference to the Request: when that is gone, the answer is not needed."""

    __slots__ = ("arrived", "connection", "followed", "number", "reply", "unwanted")

    arrived: SimpleQueue[None]  # gets an entry when there may be a reply, or when no thread receives
    connection: Connection
    followed: bool  # a thread waits on arrived
    number: int  # the request's number on the connection
    reply: tuple[int, bytes] | None  # (type, body)
    unwanted: bool


class Anchor(weakref.ref[Any]):
    """A lease whose bytes the program may read. It is a weak reference to the object that all views of the bytes keep alive."""

    __slots__ = ("lease", "size", "wakes")

    lease: int
    size: int  # bytes that the lease pins
    wakes: weakref.ref[Any]


class Session:
    """Threads may share it. Each thread sends under the lock, and one thread at a time reads for all of them."""

    def __init__(self, info: Info, memory: Map, connection: Connection, embedded: bool = False) -> None:
        """embedded: lcache.open started the server, so its flags are arguments of this program."""
        self.info, self.memory, self.embedded = info, memory, embedded
        self.inherited = False  # this process is a forked child, and the session belongs to the parent
        self._ended: deque[Anchor | Answer] = deque()  # its append() is their finalizer
        self._unanswered: deque[tuple[int, bytes]] = deque()  # (type, body) of frames without an answer, to be sent
        self._closing = False
        self._replaced = False  # closed, because another run of the server continues
        self._new_lock()
        # The lock guards the following fields, and the connection except for reading from it.
        self._connection = connection
        self._number = 0  # of the last request
        self._anchors: dict[int, Anchor] = {}  # by lease
        self._held = 0  # bytes that they pin, together
        self._unsent: dict[int, None] = {}  # leases to release, when there is a connection
        self._cancels: dict[int, None] = {}  # requests of the connection to cancel
        self._cancelled = False  # closed, and the server was asked to cancel the requests
        self._finished = False  # closed, and the map is unmapped
        sessions.add(self)

    def _new_lock(self) -> None:
        self._lock = threading.Lock()
        self._locker = 0  # the thread that took the lock last

    @property
    def usable(self) -> bool:
        """Whether a request can be sent. Otherwise a new connection or session is needed."""
        return self._connection.broken is None and not self._connection.mute and not self._closing

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._closing

    @property
    def held(self) -> int:
        """Bytes of shared memory that live batches, views, arrays and tensors pin."""
        self.settle()
        return self._held

    def send(self, request: Request) -> None:
        """Sends the request, now or together with the next one. Raises Broken if a new connection is needed, Error if the session is closing."""
        me = threading.get_ident()
        with self._lock:
            self._locker = me
            self._settle()
            if self._closing:
                raise Error("use a closed job: make another one with lcache.open or lcache.connect")
            connection = self._connection
            if not self.usable:
                raise connection.why()
            number = self._number % 0xFFFFFFFF + 1
            frame = protocol.frame(request.kind, number, request.body, connection.job)
            arrived: SimpleQueue[None] = SimpleQueue()
            answer = Answer(request, self._ended.append)
            # No call follows: an interrupt must not part these statements.
            answer.connection, answer.number, answer.arrived = connection, number, arrived
            answer.followed, answer.reply, answer.unwanted = False, None, False
            self._number = number
            request.session, request.answer, connection.answers[number] = self, answer, answer
            connection.send(frame)
            if not self.usable:
                raise connection.why()

    def wait(self, request: Request, deadline: float) -> tuple[int, bytes]:
        """Waits for the answer, and returns (type, body). Raises an ERROR answer. The request owns the lease of a batch until take() takes it.

        Raises Broken if the request must be sent again, Late at the deadline.
        """
        answer = request.answer
        assert answer is not None
        connection, me, call = answer.connection, threading.get_ident(), object()
        try:
            while True:
                with self._lock:
                    self._locker = me
                    self._settle()
                    if connection is not self._connection and connection.reader is None:
                        self._dispatch(connection)
                    reply = answer.reply
                    if reply is not None:
                        if reply[0] not in _BATCHES:
                            connection.answers.pop(answer.number, None)
                        break
                    if self._replaced:
                        raise Broken("the server was restarted")
                    if self._closing:
                        raise Error(f"wait for {request.what}: the job was closed meanwhile")
                    if connection.broken is not None:
                        raise connection.why()
                    left = deadline - time.monotonic()
                    if left <= 0:
                        raise Late
                    if connection.reader is None:
                        connection.reader = call
                    else:
                        answer.followed = True
                if connection.reader is call:
                    self._read(connection, min(left, _SLICE), me)
                else:
                    with contextlib.suppress(Empty):
                        answer.arrived.get(timeout=min(left, _SLICE))
        finally:
            if connection.reader is call:  # interrupted
                connection.reader = None
        if reply[0] == protocol.A_ERROR:
            raise error_of(reply[1], request.what, self.embedded)
        return reply

    def _read(self, connection: Connection, seconds: float, me: int) -> None:
        """Receives for all threads, and waits without the lock. The caller has set connection.reader."""
        if not connection.receive() and connection.broken is None and connection.wait(seconds):
            connection.receive()
        with self._lock:
            self._locker = me
            connection.reader = None
            self._dispatch(connection)
            if connection is not self._connection or self._finished:
                connection.close()
            else:
                connection.send()
            _notify(connection)

    def _dispatch(self, connection: Connection) -> None:
        """Stores each arrived frame as its request's reply. An answer to an unknown request breaks the connection. The lock is held, and no thread receives."""
        while (frame := connection.frame()) is not None:
            kind, number, body, rest = frame
            if kind == protocol.A_ERROR:
                error = error_of(body, "")
                if number == 0 or isinstance(error, (Broken, ConnectionError, ProtocolError)):
                    connection.fail(error)
            answer = connection.answers.get(number)
            if (answer is None or answer.reply is not None) and (number != 0 or kind != protocol.A_ERROR):
                connection.fail(ProtocolError(f"the server answered request {number}, which was not sent"))
            lease = _lease(kind, body) if answer is not None and answer.unwanted else None
            # No call follows: an interrupt must not part these statements.
            connection.received = rest
            if answer is not None and answer.unwanted:
                del connection.answers[number]
                if lease is not None:
                    self._unsent[lease] = None
            elif answer is not None:
                answer.reply = kind, body

    def take(self, request: Request, columns: protocol.Columns) -> memoryview | None:
        """A view of the whole map. It keeps the lease of a request's answer as long as anything refers to the view.

        None if the credits are used up: the caller then copies the samples and drops the request.
        """
        answer, me = request.answer, threading.get_ident()
        assert answer is not None
        with self._lock:
            self._locker = me
            self._settle()
            if answer.connection.answers.get(answer.number) is not answer or self._finished:
                raise Error("use a closed job: make another one with lcache.open or lcache.connect")
            if 0 < self.info.credit_bytes < self._held + columns.pinned and self._anchors:
                return None
            array, view = self.memory.anchor()
            wakes = releases.wakes_when_gone(array)
            anchor = Anchor(array, self._ended.append)
            # No call follows: an interrupt must not part these statements.
            anchor.lease, anchor.size, anchor.wakes = columns.lease, columns.pinned, wakes
            self._anchors[columns.lease] = anchor
            self._held += anchor.size
            del answer.connection.answers[answer.number]
            return view

    def copies(self, columns: protocol.Columns) -> list[memoryview]:
        """Private copies of the samples. It holds the lock, so that another thread's close() does not unmap them meanwhile."""
        me = threading.get_ident()
        with self._lock:
            self._locker = me
            if self._finished:
                raise Error("use a closed job: make another one with lcache.open or lcache.connect")
            return [self.memory.copy(offset, length) for offset, length in zip(columns.offsets, columns.lengths)]

    def drop(self, request: Request) -> None:
        """Drops a request, and ends the lease of its answer at once. Safe in finalizers."""
        if request.answer is not None and not self.inherited:
            self._ended.append(request.answer)
            self.settle()

    def notify(self, kind: int, body: bytes) -> None:
        """Sends a frame without an answer. A broken connection loses the frame. Safe in finalizers."""
        if not self.inherited:
            self._unanswered.append((kind, body))
            self.settle()

    def send_now(self, frames: list[tuple[int, bytes]], must: bool) -> bool:
        """Sends frames without an answer if the socket takes them at once; must: they may wait for the socket. Returns whether they were sent."""
        me = threading.get_ident()
        if self.inherited or self._is_mine(me):
            return False
        with self._lock:
            self._locker = me
            connection = self._connection
            connection.send()
            if not self.usable or (connection.waits and not must):
                return False
            connection.send(b"".join([protocol.frame(kind, 0, body, connection.job) for kind, body in frames]))
            return self.usable

    def close(self) -> None:
        """Refuses further requests. The connection and the map are kept as long as anything refers to the map. Safe in finalizers."""
        self._closing = True
        self.settle()

    def retire(self) -> None:
        """Closes the session of a server that has ended. Awaited requests must be sent again."""
        self._replaced = True
        self.close()

    def replace(self, connection: Connection) -> None:
        """Continues over another connection to the same run of the server, which kept the leases."""
        me = threading.get_ident()
        with self._lock:
            self._locker = me
            old = self._connection
            while old.reader is None and old.broken is None and old.receive():
                pass  # answers that came before the end; a receiving thread gets them itself
            if old.reader is None:
                self._dispatch(old)
            self._connection, self._cancels = connection, {}
            if old.reader is None:
                old.close()
            else:
                old.hang_up()
            _notify(old)
        self.settle()

    def forked(self) -> None:
        """In a forked child: the connection and the leases are the parent's. Nothing is sent, and the map is kept for existing views."""
        self.inherited = True
        releases.unwatch(self)
        self._new_lock()
        self._connection.close()

    def settle(self, leaving: Callable[[], bool] = sys.is_finalizing) -> None:
        """Settles the records now, or in the thread if this call interrupts one that holds the lock.

        `leaving` is a default argument because the module's names may be gone when the interpreter ends.
        """
        if leaving() or self.inherited or not self._has_records():
            return
        me = threading.get_ident()
        if self._is_mine(me):
            releases.wake()
            return
        with self._lock:
            self._locker = me
            self._settle()

    def _is_mine(self, me: int) -> bool:
        """Whether this thread holds the lock, in a call that a signal's handler or a finalizer has interrupted."""
        return self._locker == me and self._lock.locked()

    def _has_records(self) -> bool:
        if self._ended or self._unanswered:
            return True
        return self._closing and not (self._cancelled and (self._anchors or self._finished))

    def _settle(self) -> None:
        """Settles the records. The lock is held. After an interrupt the next call settles the rest."""
        connection = self._connection
        if connection.reader is None:
            self._dispatch(connection)
        while self._ended:
            ended = self._ended[0]
            if isinstance(ended, Answer):
                self._end_answer(ended)
            elif self._anchors.get(ended.lease) is ended:
                del self._anchors[ended.lease]
                self._held -= ended.size
                self._unsent[ended.lease] = None
            self._ended.popleft()
        if self._closing and not self._cancelled:
            for answer in list(connection.answers.values()):
                if not (self._replaced and answer.reply):  # the memory of a server that has ended does not change
                    self._end_answer(answer)
            self._cancelled = True
            _notify(connection)
        if self._cancels:
            connection.send(protocol.frame(protocol.CANCEL, 0, protocol.cancel(list(self._cancels))))
            self._cancels = {}
        while self._unanswered:
            kind, body = self._unanswered.popleft()
            connection.send(protocol.frame(kind, 0, body, connection.job))
        if self._unsent and connection.broken is None and not connection.waits:
            connection.send(protocol.frame(protocol.RELEASE, 0, protocol.release(list(self._unsent))))
            if not connection.mute and not connection.waits:  # otherwise they are sent again, maybe over another connection
                self._unsent = {}
        if self._closing and not self._anchors and not self._finished and not (self._replaced and _has_reply(connection)):
            connection.send(protocol.frame(protocol.BYE, 0))
            if connection.reader is None:
                connection.close()
            else:
                connection.hang_up()
            self.memory.unmap()
            self._finished = True
            releases.unwatch(self)

    def _end_answer(self, answer: Answer) -> None:
        """Ends the lease of an answer that is not needed. If the answer has not arrived, it cancels the request."""
        connection = answer.connection
        if connection.answers.get(answer.number) is not answer or answer.unwanted:
            return
        if answer.reply is not None:
            lease = _lease(*answer.reply)
            del connection.answers[answer.number]
            if lease is not None:
                self._unsent[lease] = None
        elif connection is self._connection:
            answer.unwanted = True
            self._cancels[answer.number] = None
        else:
            answer.unwanted = True


def _lease(kind: int, body: bytes) -> int | None:
    """The lease of an answer."""
    return protocol.read_lease(body) if kind in _BATCHES else None


def _notify(connection: Connection) -> None:
    """Wakes the threads that wait for answers of a connection."""
    for answer in list(connection.answers.values()):
        if answer.followed:
            answer.followed = False
            answer.arrived.put(None)


def _has_reply(connection: Connection) -> bool:
    """Whether an answer has arrived and was not fetched."""
    return any(answer.reply is not None for answer in connection.answers.values())
