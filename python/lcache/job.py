"""A Job: batches of a running server, in exact order or by index, over restarts, forks and threads."""

from __future__ import annotations

import itertools
import logging
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from . import protocol
from .batch import Batch, Samples
from .errors import ArgumentError, Error, ProtocolError
from .link import Link, expect
from .orders import column, numbers, pieces
from .replay import Options, Replay
from .session import LoanOver, NoRoom, Session, Ticket

if TYPE_CHECKING:
    from .embedded import Home

_log = logging.getLogger("lcache")


def connect(path: str | os.PathLike[str] | None = None, timeout: float = 60.0) -> Job:
    """Connects to the server at path (default: $LCACHE_SOCKET). timeout is the deadline in seconds of every later wait, reconnecting included."""
    where = os.fspath(path) if path is not None else os.environ.get("LCACHE_SOCKET", "")
    if not where:
        raise ArgumentError("no socket: give a path or set LCACHE_SOCKET, as lcache run does; lcache.open(DIR) starts a server by itself")
    if os.path.isdir(where):
        raise ArgumentError(f"{where} is a directory: give the socket in it, {os.path.join(where, 'lcache.sock')}")
    job = Job(where, timeout)
    job._link.attach(job._link.deadline(), patient=False)
    return job


class Job:
    """One job of a server. Threads may share it; a forked child and an unpickled copy get a session of their own."""

    def __init__(
        self, path: str, timeout: float = 60.0, home: Home | None = None, rank: int = 0, named: Options | None = None, replay: Replay | None = None
    ) -> None:
        """Connects when first used; connect() does at once. home can start the server again. named is what the program said of its order;
        replay gives that order where the server has another one."""
        self._link = Link(path, timeout, home)
        self._rank = rank
        self._named = named or Options()
        self._replay = replay
        self._warned = False

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        link = getattr(self, "_link", None)
        if link is not None:
            link.close()

    def __reduce__(self) -> Any:
        return Job, (self._link.path, self._link.timeout, self._link.home, self._rank, self._named, self._replay)

    def __repr__(self) -> str:
        return f"<lcache.Job at {self._link.path}>"

    def close(self) -> None:
        """No more requests. Views that exist stay valid: the lease on their bytes lasts until the last one is gone."""
        self._link.close()

    # What the server told about the job.

    @property
    def samples(self) -> int:
        return self._link.info.samples

    @property
    def epochs(self) -> int:
        """0 if unknown."""
        return self._named.epochs or self._link.info.epochs

    @property
    def batch_size(self) -> int:
        return self._named.batch_size or self._link.info.batch_size

    @property
    def classes(self) -> list[str]:
        return self._link.info.classes

    @property
    def fingerprint(self) -> str:
        return self._link.info.fingerprint

    @property
    def name(self) -> str:
        return self._link.info.name

    @property
    def source(self) -> str:
        return self._link.info.source

    @property
    def world(self) -> int:
        return self._link.info.world

    @property
    def rank(self) -> int:
        """This process's, as open() was told or found out; 0 otherwise."""
        return self._rank

    @property
    def ranks(self) -> list[int]:
        """The ranks that this server delivers to."""
        return self._link.info.ranks

    @property
    def drop_last(self) -> bool:
        return (self._replay or self._link.info).drop_last

    @property
    def recipe(self) -> str:
        return (self._replay or self._link.info).recipe

    @property
    def seed(self) -> str:
        """As text; not every seed fits an int64."""
        return (self._replay or self._link.info).seed

    @property
    def on_error(self) -> str:
        """What becomes of a sample that can't be read: "fail", a SampleError, or "skip", a batch without it."""
        return self._link.info.on_error

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._link.info.pid

    # Batches.

    def epoch(self, epoch: int, rank: int | None = None, start: int = 0) -> Iterator[Batch]:
        """The batches of one rank (default: job.rank) in exact order, from batch `start` on. The next one is asked for before one is handed out."""
        rank = self._rank if rank is None else rank
        self._push_replayed(epoch, rank)
        forks, mine = self._link.forks, self._link.orders.get((epoch, rank))
        ask = self._chunks(epoch, rank) if mine is None else self._positions(epoch, rank, mine)
        coming: tuple[Ticket, array[int] | None] | None = None
        try:
            for number in range(start, protocol.NOWHERE):
                if forks != self._link.forks:
                    raise Error("this iterator belongs to the parent process: begin a new one here with job.epoch()")
                asked, coming = coming or ask(number), None
                copies: list[Any] = []
                if asked is not None:
                    ticket, wanted = asked
                    try:
                        kind, body = self._link.finish(ticket)
                    except NoRoom:
                        kind, body = protocol.A_BATCH, b""
                        copies.append(self._copied(ticket, wanted))
                if asked is None or kind == protocol.A_END or copies == [None]:
                    self._forget(epoch + 1, rank)
                    return
                self._forget(epoch, rank)
                coming = ask(number + 1)
                if coming is not None:
                    self._link.early(coming[0])
                yield copies.pop() if copies else self._batch(ticket, kind, body, wanted)  # no name is bound to it, so that only the caller holds it
        finally:
            if coming is not None and coming[0].session is not None:
                coming[0].session.drop(coming[0])

    def _chunks(self, epoch: int, rank: int) -> Callable[[int], tuple[Ticket, None]]:
        """Requests for the batches of the server's order, by number."""

        def ask(number: int) -> tuple[Ticket, None]:
            return Ticket(protocol.CHUNK, protocol.chunk(*numbers(epoch, rank, number)), f"epoch {epoch} rank {rank} batch {number}"), None

        return ask

    def _positions(self, epoch: int, rank: int, order: tuple[array[int], array[int]]) -> Callable[[int], tuple[Ticket, array[int]] | None]:
        """Requests for the batches of an order that this job pushed, by number; None behind the last one. They name their samples, since other
        jobs may push other orders to the same server."""
        sizes, flat = order
        ends = array("Q", itertools.accumulate(sizes))

        def ask(number: int) -> tuple[Ticket, array[int]] | None:
            if number >= len(sizes):
                return None
            wanted = flat[ends[number] - sizes[number] : ends[number]]
            where = numbers(epoch, rank, number)
            return Ticket(protocol.GET, protocol.get(wanted.tobytes(), where), f"epoch {epoch} rank {rank} batch {number}"), wanted

        return ask

    def get(self, indices: Iterable[int], at: tuple[int, int, int] | None = None) -> Batch:
        """Any samples, at any time. at=(epoch, rank, batch) says where in the schedule they belong; only speed depends on it. From a server
        that skips what it can't read the batch may be shorter: its indices say what it holds."""
        wanted = column(indices, "index")
        if len(wanted) > protocol.MAX_BATCH:
            raise ArgumentError(f"get {len(wanted)} indices: at most {protocol.MAX_BATCH} at once")
        where = (protocol.NOWHERE,) * 3 if at is None else numbers(*at)
        ticket = Ticket(protocol.GET, protocol.get(wanted.tobytes(), where), f"{len(wanted)} samples by index")
        try:
            kind, body = self._link.finish(ticket)
        except NoRoom:
            copy = self._copied(ticket, wanted)
            if copy is None:
                raise ProtocolError(f"{ticket.what}: the server's answer is an epoch's end") from None
            return copy
        return self._batch(ticket, kind, body, wanted)

    def _push_replayed(self, epoch: int, rank: int) -> None:
        """Pushes what an epoch and the next one are, where the program's order is not the server's."""
        if self._replay is None:
            return
        for number in (epoch, epoch + 1):
            if (number, rank) in self._link.pushed or number > epoch and 0 < self.epochs <= number:
                continue
            try:
                self.push_order(number, rank, self._replay.order(self.samples, number, rank))
            except ArgumentError as e:
                if number == epoch:
                    raise ArgumentError(f"this program asks for {self._replay.differs}, and the server (pid {self.pid}) does not take another order: {e}") from None

    def _batch(self, ticket: Ticket, kind: int, body: bytes, wanted: array[int] | None = None) -> Batch:
        session = ticket.session
        assert session is not None
        if kind != protocol.A_BATCH:
            raise ProtocolError(f"{ticket.what}: the server's answer has type {kind}")
        columns = protocol.read_batch(body, session.memory.size, session.info.samples)
        _check(ticket, columns, wanted)
        split = self._parts if session.info.parts else None
        view = session.take(columns)
        if view is not None:
            return Batch(columns, Samples(view, columns, session), self._names, split)
        self._warn(f"batches that are kept hold more than the {session.info.credit_bytes} bytes of shared memory this process may: further ones are copied")
        try:
            copies = session.copies(columns)
        finally:
            session.end(columns.lease)
        return Batch(columns, copies, self._names, split)

    def _copied(self, ticket: Ticket, wanted: array[int] | None = None) -> Batch | None:
        """A request's samples as private copies, where leases leave no room for them: the server lends them in parts, each for a moment. None at an
        epoch's end."""
        self._warn("batches that are kept, here or in other processes, hold the server's shared memory: batches that it has no room for are copied")
        deadline = self._link.deadline()
        copies: list[memoryview] = []
        lengths: list[int] = []
        indices, labels = array("I"), array("i")
        after, total = 0, -1
        while after != total:
            part = Ticket(protocol.LEND, protocol.lend(ticket.kind, after, ticket.body), ticket.what)
            kind, body = self._link.finish(part, deadline)
            session = part.session
            assert session is not None
            if kind == protocol.A_END:
                return None
            expect(part, kind, protocol.A_LOAN)
            columns, end, all = protocol.read_loan(body, after, session.memory.size, session.info.samples)
            if total not in (-1, all) or (end - after != len(columns.lengths) and session.info.on_error != "skip"):
                raise ProtocolError(f"{ticket.what}: the server lent {len(columns.lengths)} samples from {after} to {end} of {all}, of {total} before")
            views = session.copies(columns)
            if not self._confirmed(part, columns, deadline):
                continue
            copies += views
            lengths += columns.lengths
            indices.frombytes(columns.indices.tobytes())
            labels.frombytes(columns.labels.tobytes())
            after, total = end, all
        columns = protocol.Columns(0, 0, (), tuple(lengths), memoryview(indices), memoryview(labels))
        _check(ticket, columns, wanted, session)
        return Batch(columns, copies, self._names, self._parts if session.info.parts else None)

    def _confirmed(self, part: Ticket, columns: protocol.Columns, deadline: float) -> bool:
        """Whether a loan had lasted until its bytes were copied. Another run of the server knows nothing of it."""
        done = Ticket(protocol.COPIED, protocol.copied(columns.lease), part.what)
        try:
            expect(done, self._link.finish(done, deadline)[0], protocol.A_OK)
        except LoanOver:
            return False
        return done.session is part.session

    def _warn(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            _log.warning(text)

    def names(self, indices: Iterable[int]) -> list[str]:
        """The samples' names: paths below the source. Bytes that are not UTF-8 come as surrogates (os.fsencode gives them back)."""
        return self._names(memoryview(column(indices, "index")))

    def _names(self, indices: memoryview) -> list[str]:
        names: list[str] = []
        while len(names) < len(indices):
            rest = indices[len(names) : len(names) + protocol.PUSH_PIECE]
            body = self._link.call(protocol.NAMES, protocol.names(rest.tobytes()), f"{len(rest)} names", protocol.A_NAMES)
            names += protocol.read_names(body, len(rest))
        return names

    def _parts(self, indices: memoryview, lengths: Sequence[int]) -> list[protocol.Boundaries]:
        parts: list[protocol.Boundaries] = []
        while len(parts) < len(indices):
            rest = slice(len(parts), len(parts) + protocol.PUSH_PIECE)
            asked = indices[rest]
            body = self._link.call(protocol.PARTS, protocol.parts(asked.tobytes()), f"the parts of {len(asked)} samples", protocol.A_PARTS)
            parts += protocol.read_parts(body, lengths[rest])
        return parts

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
            kind, _ = self._link.finish(ticket)
            expect(ticket, kind, protocol.A_OK)
        self._link.pushed[epoch, rank] = self._link.orders[epoch, rank] = sizes, flat

    def stats(self) -> dict[str, Any]:
        """The server's status document."""
        return protocol.read_json(self._link.call(protocol.STATUS, b"", "the status", protocol.A_JSON))

    def report(
        self, epoch: int | None = None, rank: int | None = None, *, loop_wait: float = 0.0, loop: float = 0.0, decode: float = 0.0, workers: int = 0
    ) -> None:
        """Tells the server, for its status document, seconds since the last report: the training loop of a rank (default: job.rank) was blocked waiting
        for a batch; it ran, waiting included; this process made samples of bytes. workers: how many processes decode for the loop. Without an
        epoch only decoding counts. Never waits; does nothing where the server knows no reports or the connection is broken."""
        if "report" not in self._link.info.features:
            return
        said = {"decode_seconds": max(decode, 0.0)}
        if epoch is not None:
            numbers(epoch, rank := self._rank if rank is None else rank)
            said.update(epoch=epoch, rank=rank, loop_wait_seconds=max(loop_wait, 0.0), loop_seconds=max(loop, 0.0), workers=min(workers, 0xFFFF))
        self._link.tell(protocol.REPORT, protocol.report(said))

    def _had(self, epoch: int, rank: int, first: int, count: int) -> None:
        """Tells the server that batches of an epoch were asked for without their places, before its order was pushed."""
        if count and "report" in self._link.info.features:
            self._link.tell(protocol.REPORT, protocol.report({"epoch": epoch, "rank": rank, "first": first, "had": count}))

    def _forget(self, epoch: int, rank: int) -> None:
        """Orders of this rank before epoch are done. The last of them may be read once more."""
        for orders, done in ((self._link.pushed, epoch), (self._link.orders, epoch - 1)):
            for key in [key for key in orders if key[1] == rank and key[0] < done]:
                orders.pop(key, None)


def _check(ticket: Ticket, columns: protocol.Columns, wanted: array[int] | None, session: Session | None = None) -> None:
    """That the server answered what was asked; one that skips may leave some out."""
    session = session or ticket.session
    assert session is not None
    if wanted is not None and columns.indices != memoryview(wanted) and not (session.info.on_error == "skip" and _is_part(columns.indices, wanted)):
        raise ProtocolError(f"{ticket.what}: the server answered with other indices")


def _is_part(got: memoryview, wanted: array[int]) -> bool:
    """Whether got is wanted with some left out."""
    rest = iter(wanted)
    return all(index in rest for index in got)
