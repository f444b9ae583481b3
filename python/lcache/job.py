"""A Job: batches of a running server, in exact order or by index, over restarts, forks and threads."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from . import protocol
from .batch import Batch, Samples
from .connection import Broken, Connection
from .errors import ArgumentError, ConnectionError, Error, ProtocolError, TimeoutError
from .info import Info
from .memory import Map
from .orders import column, numbers, pieces
from .session import Late, Session, Ticket, error_of, sessions

if TYPE_CHECKING:
    from .embedded import Home

_log = logging.getLogger("lcache")
_CLIENT = "lcache-python 0.1"
_HANDSHAKE = 10.0  # seconds for HELLO and its answer
_GRACE = 2.0  # seconds: a server that waits as long as we do knows better what for, so its error may come first

_jobs: weakref.WeakSet[Job] = weakref.WeakSet()


def connect(path: str | os.PathLike[str] | None = None, timeout: float = 60.0) -> Job:
    """Connects to the server at path (default: $LCACHE_SOCKET). timeout is the deadline in seconds of every later wait, reconnecting included."""
    where = os.fspath(path) if path is not None else os.environ.get("LCACHE_SOCKET", "")
    if not where:
        raise ArgumentError("no socket: give a path, or set LCACHE_SOCKET")
    job = Job(where, timeout)
    job._attach(time.monotonic() + timeout, patient=False)
    return job


class Job:
    """One job of a server. Threads may share it; a forked child and an unpickled copy get a session of their own."""

    def __init__(self, path: str, timeout: float = 60.0, home: Home | None = None, rank: int = 0) -> None:
        """Connects when first used; connect() does at once. home can start the server again."""
        self._path, self._timeout, self._home, self._rank = path, timeout, home, rank
        self._known: Info | None = None
        self._closed = False
        self._warned = False
        self._session: Session | None = None
        self._forks = 0
        self._connecting = threading.Lock()
        # Orders pushed and not read to their end, by (epoch, rank): another server needs them again.
        self._pushed: dict[tuple[int, int], tuple[array[int], array[int]]] = {}
        _jobs.add(self)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        session = getattr(self, "_session", None)
        if session is not None:
            session.close()

    def __reduce__(self) -> Any:
        return Job, (self._path, self._timeout, self._home, self._rank)

    def __repr__(self) -> str:
        return f"<lcache.Job at {self._path}>"

    def close(self) -> None:
        """No more requests. Views that exist stay valid: the lease on their bytes lasts until the last one is gone."""
        self._closed = True
        if self._session is not None:
            self._session.close()

    # What the server told about the job.

    @property
    def samples(self) -> int:
        return self._info.samples

    @property
    def epochs(self) -> int:
        """0 if unknown."""
        return self._info.epochs

    @property
    def batch_size(self) -> int:
        return self._info.batch_size

    @property
    def classes(self) -> list[str]:
        return self._info.classes

    @property
    def fingerprint(self) -> str:
        return self._info.fingerprint

    @property
    def name(self) -> str:
        return self._info.name

    @property
    def source(self) -> str:
        return self._info.source

    @property
    def world(self) -> int:
        return self._info.world

    @property
    def rank(self) -> int:
        """This process's, as open() was told or found out; 0 otherwise."""
        return self._rank

    @property
    def ranks(self) -> list[int]:
        """The ranks that this server delivers to."""
        return self._info.ranks

    @property
    def drop_last(self) -> bool:
        return self._info.drop_last

    @property
    def recipe(self) -> str:
        return self._info.recipe

    @property
    def seed(self) -> str:
        """As text; not every seed fits an int64."""
        return self._info.seed

    @property
    def on_error(self) -> str:
        """What becomes of a sample that can't be read: "fail", a SampleError, or "skip", a batch without it."""
        return self._info.on_error

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._info.pid

    @property
    def _info(self) -> Info:
        if self._known is None:
            self._attach(self._deadline())
        assert self._known is not None
        return self._known

    # Batches.

    def epoch(self, epoch: int, rank: int | None = None, start: int = 0) -> Iterator[Batch]:
        """The batches of one rank (default: job.rank) in exact order, from batch `start` on. The next one is asked for before one is handed out."""
        rank = self._rank if rank is None else rank
        forks = self._forks
        coming: Ticket | None = None
        try:
            for number in range(start, protocol.NOWHERE):
                if forks != self._forks:
                    raise Error("this iterator belongs to the parent process: begin a new one here with job.epoch()")
                asked, coming = coming or self._chunk(epoch, rank, number), None
                kind, body = self._finish(asked, self._deadline())
                if kind == protocol.A_END:
                    self._forget(epoch + 1, rank)
                    return
                self._forget(epoch, rank)
                coming = self._chunk(epoch, rank, number + 1)
                self._early(coming)
                yield self._batch(asked, kind, body)  # no name is bound to it, so that only the caller holds it
        finally:
            if coming is not None and coming.session is not None:
                coming.session.drop(coming)

    def get(self, indices: Iterable[int], at: tuple[int, int, int] | None = None) -> Batch:
        """Any samples, at any time. at=(epoch, rank, batch) says where in the schedule they belong; only speed depends on it. From a server
        that skips what it can't read the batch may be shorter: its indices say what it holds."""
        wanted = column(indices, "index")
        if len(wanted) > protocol.MAX_BATCH:
            raise ArgumentError(f"get {len(wanted)} indices: at most {protocol.MAX_BATCH} at once")
        where = (protocol.NOWHERE,) * 3 if at is None else numbers(*at)
        ticket = Ticket(protocol.GET, protocol.get(wanted.tobytes(), where), f"{len(wanted)} samples by index")
        kind, body = self._finish(ticket, self._deadline())
        return self._batch(ticket, kind, body, wanted)

    def _chunk(self, epoch: int, rank: int, number: int) -> Ticket:
        what = f"epoch {epoch} rank {rank} batch {number}"
        return Ticket(protocol.CHUNK, protocol.chunk(*numbers(epoch, rank, number)), what)

    def _batch(self, ticket: Ticket, kind: int, body: bytes, wanted: array[int] | None = None) -> Batch:
        session = ticket.session
        assert session is not None
        if kind != protocol.A_BATCH:
            raise ProtocolError(f"{ticket.what}: the server's answer has type {kind}")
        columns = protocol.read_batch(body, session.memory.size, session.info.samples)
        if wanted is not None and columns.indices != memoryview(wanted) and not (session.info.on_error == "skip" and _is_part(columns.indices, wanted)):
            raise ProtocolError(f"{ticket.what}: the server answered with other indices")
        view = session.take(columns)
        if view is not None:
            return Batch(columns, Samples(view, columns, session), self._names)
        if not self._warned:
            self._warned = True
            _log.warning(
                "batches that are kept hold more than the %d bytes of shared memory this process may: further ones are copied", session.info.credit_bytes
            )
        try:
            copies = [session.memory.copy(offset, length) for offset, length in zip(columns.offsets, columns.lengths)]
        finally:
            session.end(columns.lease)
        return Batch(columns, copies, self._names)

    def names(self, indices: Iterable[int]) -> list[str]:
        """The samples' names: paths below the source. Bytes that are not UTF-8 come as surrogates (os.fsencode gives them back)."""
        return self._names(memoryview(column(indices, "index")))

    def _names(self, indices: memoryview) -> list[str]:
        names: list[str] = []
        while len(names) < len(indices):
            rest = indices[len(names) : len(names) + protocol.PUSH_PIECE]
            _, body = self._call(protocol.NAMES, protocol.names(rest.tobytes()), f"{len(rest)} names", protocol.A_NAMES)
            names += protocol.read_names(body, len(rest))
        return names

    # Orders and state.

    def push_order(self, epoch: int, rank: int, indices: Iterable[int] | Sequence[Sequence[int]]) -> None:
        """Gives the order of one epoch and rank: indices, which are cut by batch_size, or batches of any sizes."""
        numbers(epoch, rank)
        if not hasattr(indices, "__len__"):
            indices = list(indices)
        flat_array = getattr(indices, "ndim", None) == 1  # whose elements may have a length that raises
        if not flat_array and len(indices) and hasattr(indices[0], "__len__"):  # type: ignore[index, arg-type]
            batches = [column(batch, "index") for batch in indices]
            sizes = array("I", map(len, batches))
            flat = array("I", b"".join(batch.tobytes() for batch in batches))
        else:
            flat = column(indices, "index")
            size = self.batch_size
            if size <= 0:
                raise ArgumentError("this job has no batch size: push the order as a list of batches")
            sizes = array("I", [min(size, len(flat) - at) for at in range(0, len(flat), size)])
        if max(sizes, default=0) > protocol.MAX_BATCH:
            raise ArgumentError(f"push a batch of {max(sizes)} samples: at most {protocol.MAX_BATCH}")
        for ticket in pieces(epoch, rank, sizes, flat):
            kind, _ = self._finish(ticket, self._deadline())
            _expect(ticket, kind, protocol.A_OK)
        self._pushed[epoch, rank] = sizes, flat

    def stats(self) -> dict[str, Any]:
        """The server's status document."""
        return protocol.read_json(self._call(protocol.STATUS, b"", "the status", protocol.A_JSON)[1])

    def _forget(self, epoch: int, rank: int) -> None:
        """Orders of this rank before epoch are done."""
        if self._pushed:
            for key in [key for key in self._pushed if key[1] == rank and key[0] < epoch]:
                self._pushed.pop(key, None)

    # Requests.

    def _deadline(self) -> float:
        return time.monotonic() + self._timeout

    def _call(self, kind: int, body: bytes, what: str, answer: int) -> tuple[int, bytes]:
        ticket = Ticket(kind, body, what)
        got = self._finish(ticket, self._deadline())
        _expect(ticket, got[0], answer)
        return got

    def _early(self, ticket: Ticket) -> None:
        """Sends a request ahead of its need, if that can be done at once; else _finish does."""
        session = self._session
        if session is not None and session.usable and not self._closed:
            try:
                session.send(ticket, self._deadline())
            except Broken:
                ticket.session = None

    def _finish(self, ticket: Ticket, deadline: float) -> tuple[int, bytes]:
        """The answer. Sends the request if it was not, and again after a broken connection: every request may be repeated."""
        pause = 0.0
        try:
            while True:
                try:
                    if ticket.session is None:
                        self._attach(deadline, ticket.what).send(ticket, deadline)
                    assert ticket.session is not None
                    return ticket.session.wait(ticket, deadline + min(_GRACE, self._timeout / 10))
                except Broken as e:
                    ticket.session = None
                    if time.monotonic() + pause >= deadline:
                        raise ConnectionError(f"waited {self._timeout:g} s for {ticket.what} at {self._path}: {e}") from None
                    time.sleep(pause)  # a server that accepts and breaks off, again and again
                    pause = min(2 * pause + 0.01, 2.0)
        except Late:
            raise TimeoutError(f"waited {self._timeout:g} s for {ticket.what} from server pid {self._info.pid} at {self._path}") from None
        finally:
            # Does nothing after an answer; after anything else, Ctrl-C included, an answer that still comes is given back.
            if ticket.session is not None:
                ticket.session.drop(ticket)

    # The connection.

    def _attach(self, deadline: float, what: str = "the server", patient: bool = True) -> Session:
        """The session, connected: again if need be, with growing pauses until the deadline."""
        session = self._session
        if session is not None and session.usable and not self._closed:
            return session
        if not self._connecting.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise TimeoutError(f"waited {self._timeout:g} s for {what} while another thread reconnects to {self._path}")
        try:
            pause = 0.01
            while True:
                if self._closed:
                    raise Error("the job is closed")
                session = self._session
                if session is not None and session.usable:
                    return session
                try:
                    return self._open(session, deadline)
                except Broken as e:
                    if not patient:
                        raise ConnectionError(f"{e} (is `lcache serve` running?)") from None
                    if time.monotonic() + pause >= deadline:
                        raise ConnectionError(f"waited {self._timeout:g} s for {what}: {e}") from None
                if self._home is not None:
                    self._home.revive()
                time.sleep(pause)
                pause = min(2 * pause, 1.0)
        finally:
            self._connecting.release()

    def _open(self, old: Session | None, deadline: float) -> Session:
        """One attempt: connect, HELLO, and the old session again or a new one."""
        deadline = min(deadline, time.monotonic() + _HANDSHAKE)
        connection, fd = Connection(self._path, deadline), None
        try:
            token = old.info.token if old is not None else None
            connection.send(protocol.frame(protocol.HELLO, 1, protocol.hello(_CLIENT, token)), deadline)
            kind, body, fd = connection.receive_with_fd(deadline)
            if kind == protocol.A_ERROR:
                raise error_of(body, f"connect to {self._path}")
            if kind != protocol.A_JSON or fd is None:
                raise ProtocolError(f"the server at {self._path} answered HELLO with type {kind} and {'no' if fd is None else 'a'} descriptor")
            info = Info.of(protocol.read_json(body))
            if self._known is not None and info.fingerprint != self._known.fingerprint:
                raise Error(f"the server at {self._path} now has another dataset: fingerprint {info.fingerprint}, it was {self._known.fingerprint}")
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
        self._known, self._session = info, session
        return session

    def _push_again(self, session: Session, deadline: float) -> None:
        for (epoch, rank), (sizes, flat) in list(self._pushed.items()):
            for ticket in pieces(epoch, rank, sizes, flat):
                session.send(ticket, deadline)
                try:
                    _expect(ticket, session.wait(ticket, deadline)[0], protocol.A_OK)
                except Late:
                    raise Broken(f"the server did not answer to {ticket.what}") from None

    def _forked(self) -> None:
        self._forks += 1
        self._connecting = threading.Lock()
        self._session = None
        self._pushed = {}


def _after_fork() -> None:
    for session in list(sessions):
        session.forked()
    for job in list(_jobs):
        job._forked()


os.register_at_fork(after_in_child=_after_fork)


def _is_part(got: memoryview, wanted: array[int]) -> bool:
    """Whether got is wanted with some left out."""
    rest = iter(wanted)
    return all(index in rest for index in got)


def _expect(ticket: Ticket, kind: int, answer: int) -> None:
    if kind != answer:
        raise ProtocolError(f"{ticket.what}: the server's answer has type {kind}, not {answer}")
