"""A Job: batches of a running server, in exact order or by index. It works across server restarts, forks and threads."""

from __future__ import annotations

import logging
import os
import threading
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from ._client import protocol, releases
from ._client.early import EarlyRequest, get_request
from ._client.embedded import Home
from ._client.link import Link, require_kind
from ._client.loans import copy_by_loans
from ._client.options import Options
from ._client.orders import Order, chunk_requests, order_requests, push_requests, require_indices, require_numbers, u32_array
from ._client.parts import BatchParts, read_parts
from ._client.replay import Replay
from ._client.server_errors import NoRoom
from ._client.session import Request
from ._client.status_poll import StatusPoll
from .batch import Batch, Samples
from .errors import ArgumentError, Error, ProtocolError
from .importance import Observed

_log = logging.getLogger("lcache")


def connect(path: str | os.PathLike[str] | None = None, timeout: float = 60.0, *, job: str | None = None) -> Job:
    """Connects to the server at path (default: $LCACHE_SOCKET) and returns its job.

    timeout is the deadline in seconds of every later wait, including reconnects. job is a text that names one of several jobs on the same
    server: all processes that give the same text are one job, with its own orders and counters. Without it the job is that of the server's
    recipe. Raises ArgumentError without a usable path, ConnectionError without a server there.
    """
    return connect_as(None, path, timeout, job)


def connect_as(rank: int | None, path: str | os.PathLike[str] | None, timeout: float, token: str | None = None) -> Job:
    """connect() for a process with that rank; None: unknown."""
    where = os.fspath(path) if path is not None else os.environ.get("LCACHE_SOCKET", "")
    if not where:
        raise ArgumentError("connect without a socket: give its path, set LCACHE_SOCKET as lcache run does, or call lcache.open(DIR), which starts a server")
    if os.path.isdir(where):
        raise ArgumentError(f"connect to {where}: it is a directory; give the socket in it, {os.path.join(where, 'lcache.sock')}")
    job = Job(where, timeout, rank=rank, token=token)
    job.attach(patient=False)
    return job


def require_token(token: str | None) -> str | None:
    """Raises ArgumentError unless the token can name a job."""
    if token is not None and not (isinstance(token, str) and 0 < len(token.encode(errors="replace")) <= protocol.MAX_TOKEN):
        raise ArgumentError(f"job={token!r:.80}: give a text of 1 to {protocol.MAX_TOKEN} bytes")
    return token


class Job(Observed):
    """One job of a server. Threads may share it; a forked child and an unpickled copy get a session of their own."""

    def __init__(
        self,
        path: str,
        timeout: float = 60.0,
        home: Home | None = None,
        rank: int | None = 0,
        named: Options | None = None,
        replay: Replay | None = None,
        token: str | None = None,
    ) -> None:
        """Does not connect: the first use does. connect() and lcache.open() connect at once.

        path is the server's socket, timeout the deadline of every wait in seconds. home starts the server again after its end.
        named holds the options that the program gave. replay computes the program's order if the server has another order.
        token names one of several jobs; None: the server's own.
        """
        self._link = Link(path, timeout, home)
        self._link.token = require_token(token)
        self._rank, self._rank_given = rank or 0, rank is not None
        self._named = named or Options()
        self._replay = replay
        self._warned = False
        self._early = EarlyRequest(self._link)
        self._poll = StatusPoll(self._link)
        releases.when_gone(self, self._link.close)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        return Job, (self._link.path, self._link.timeout, self._link.home, self._given_rank, self._named, self._replay, self._link.token)

    def __repr__(self) -> str:
        return f"<lcache.Job at {self._link.path}>"

    def close(self) -> None:
        """Ends requests. Existing views stay valid: the lease on their bytes lasts until the last view is gone."""
        if self._observer is not None:
            self._observer.flush()
        self._link.close()

    # For other modules of lcache.

    def attach(self, patient: bool = True) -> None:
        """Connects now. patient: waits for a server until the timeout. Raises ConnectionError if there is none."""
        self._link.attach(self._link.deadline(), patient=patient)

    def name_job(self, token: str | None) -> None:
        """From the next request on, this object is part of the job with that token."""
        self._link.rename(require_token(token))

    def named(self, token: str) -> Job:
        """The job with that token on the same server, with a connection of its own."""
        job = Job(self._link.path, self._link.timeout, self._link.home, self._given_rank, self._named, self._replay, token)
        job._link.learn(self._link)
        return job

    @property
    def has_named_jobs(self) -> bool:
        """Whether the server keeps a job for each token."""
        return "jobs" in self.info.features

    def set_order(self, named: Options, replay: Replay | None) -> None:
        """Sets the options that the program gave, and the replay that computes its order if the server has another one."""
        self._named, self._replay = named, replay

    # Batches.

    def epoch(self, epoch: int, rank: int | None = None, start: int = 0) -> Iterator[Batch]:
        """Yields the batches of one rank (default: job.rank) in exact order, from batch `start` on.

        It requests the next batch before it yields one, so that the server prepares it meanwhile. Raises ArgumentError for an epoch or
        rank that the job lacks, SampleError for a sample that can't be read.
        """
        rank = self._rank if rank is None else rank
        observer = self._observer
        if observer is not None:
            observer.flush(self._link.deadline())  # the order may depend on these reports
        else:
            self._push_replayed(epoch, rank)
        forks, pushed = self._link.forks, self._link.orders.get((epoch, rank))
        # A pushed order is read by index, because other jobs may push other orders to the same server.
        request_of = chunk_requests(epoch, rank) if pushed is None else order_requests(epoch, rank, pushed)
        following: tuple[Request, array[int] | memoryview | None] | None = None
        for number in range(start, protocol.NOWHERE):
            if forks != self._link.forks:
                raise Error("iterate over an epoch in a forked child: the iterator is the parent's; begin a new one here with job.epoch()")
            asked, following = following or request_of(number), None
            copies: list[Batch | None] = []
            if asked is not None:
                request, wanted = asked
                try:
                    kind, body = self._link.answer(request)
                except NoRoom:
                    kind, body = protocol.A_BATCH, b""
                    copies.append(self._copied(request, wanted))
            if asked is None or kind == protocol.A_END or copies == [None]:
                self.forget_orders(epoch + 1, rank)
                return
            self.forget_orders(epoch, rank)
            following = request_of(number + 1)
            if following is not None:
                self._link.send_early(following[0])
            if observer is not None:
                observer.epoch = epoch
            # The batch is not bound to a name here, so that only the caller holds it.
            yield cast(Batch, copies.pop()) if copies else self._batch(request, kind, body, wanted)

    def get(self, indices: Iterable[int], at: tuple[int, int, int] | None = None) -> Batch:
        """A batch of any samples, at any time.

        at=(epoch, rank, batch) is the batch's position in the schedule. Only speed depends on it, unless the job allows substitutes: then samples
        that the epoch's order has at that position are served as job.epoch serves them, and batch.requested has the requested indices. A server with
        on_error="skip" leaves out samples that it can't read, so that batch.indices is shorter. Raises ArgumentError for an unknown index.
        """
        wanted = u32_array(indices, "index")
        if len(wanted) > protocol.MAX_BATCH:
            raise ArgumentError(f"get {len(wanted)} samples: request at most {protocol.MAX_BATCH} at once")
        if at is not None:
            require_numbers(*at)
        request = get_request(wanted, protocol.NO_POSITION if at is None else at)
        deadline = self._link.deadline()
        try:
            early = self._early.answer(request.body, deadline)
            if early is None:
                kind, body = self._link.answer(request, deadline)
            else:
                request, kind, body = early
        except NoRoom:
            copy = self._copied(request, wanted)
            if copy is None:
                raise ProtocolError(f"{request.what}: the server answered with the end of an epoch") from None
            return copy
        return self._batch(request, kind, body, wanted)

    def send_early(self, indices: Iterable[int], at: tuple[int, int, int], size: int) -> None:
        """Sends the request of a batch that get() is likely to be called for next, with the same arguments.

        size is about the bytes of the batch. If the server has no room for them, nothing is sent.
        """
        self._early.send(u32_array(indices, "index"), at, size)

    def drop_early(self) -> None:
        """Drops the request that was sent early."""
        self._early.drop()

    def _push_replayed(self, epoch: int, rank: int) -> None:
        """Pushes the orders of an epoch and the next one if the program's order differs from the server's."""
        if self._replay is None:
            return
        for number in (epoch, epoch + 1):
            if (number, rank) in self._link.pushed or (number > epoch and 0 < self.epochs <= number):
                continue
            try:
                self.push_order(number, rank, self._replay.order(self.samples, number, rank))
            except ArgumentError as e:
                if number == epoch:
                    raise ArgumentError(
                        f"this program gives {self._replay.differs}, and the server (pid {self.pid}) refuses another order than its own: {e}"
                    ) from None

    def _batch(self, request: Request, kind: int, body: bytes, wanted: array[int] | memoryview | None) -> Batch:
        """The batch of an answer: views of shared memory, or private copies beyond the credits."""
        session = request.session
        assert session is not None
        if kind not in (protocol.A_BATCH, protocol.A_SERVED):
            raise ProtocolError(f"{request.what}: the server's answer has type {kind}")
        columns = protocol.read_batch(body, session.memory.size, session.info.samples, kind == protocol.A_SERVED, session.info.parts)
        require_indices(request, session, columns, wanted)
        parts = self._parts if session.info.parts else None
        view = session.take(request, columns)
        if view is not None:
            return Batch(columns, Samples(view, columns, session), self._names, parts)
        self._warn(f"this process keeps batches in all {session.info.credit_bytes} bytes of shared memory that it may hold: further batches are copied")
        try:
            copies = session.copies(columns)
        finally:
            session.drop(request)
        return Batch(columns, copies, self._names, parts)

    def _copied(self, request: Request, wanted: array[int] | memoryview | None) -> Batch | None:
        """The batch of a request as private copies, because leases leave no room for its samples. None at the end of an epoch."""
        self._warn("the batches that this or another process keeps hold the server's shared memory: batches without room in it are copied")
        copied = copy_by_loans(self._link, request)
        if copied is None:
            return None
        columns, copies, session = copied
        require_indices(request, session, columns, wanted)
        return Batch(columns, copies, self._names, self._parts if session.info.parts else None)

    def names(self, indices: Iterable[int]) -> list[str]:
        """The samples' names: paths below the source. Bytes that are not UTF-8 are surrogates; os.fsencode restores the bytes."""
        return self._names(memoryview(u32_array(indices, "index")))

    def labels(self) -> array[int]:
        """The label of every sample."""
        labels = array("i")
        if "labels" not in self.info.features:
            # An older server sends labels only with bytes. The folders determine them, unless a file gave other labels.
            if self.info.listing.get("labels"):
                raise Error("labels: the server is an older release, which sends them only with samples: stop it with lcache stop, and a newer one starts")
            number = {name: label for label, name in enumerate(self.classes)}
            return array("i", (number.get(name.split("/", 1)[0], 0) for name in self.names(range(self.samples))))
        while len(labels) < self.samples:
            rest = self.samples - len(labels)
            body = self._link.call(protocol.LABELS, protocol.labels(len(labels), rest), f"{rest} labels", protocol.A_LABELS)
            labels.frombytes(protocol.read_labels(body, rest).tobytes())
        return labels

    def _names(self, indices: memoryview) -> list[str]:
        names: list[str] = []
        while len(names) < len(indices):
            rest = indices[len(names) : len(names) + protocol.PUSH_PIECE]
            body = self._link.call(protocol.NAMES, protocol.names(rest.tobytes()), f"{len(rest)} names", protocol.A_NAMES)
            names += protocol.read_names(body, len(rest))
        return names

    def _parts(self, indices: memoryview, lengths: Sequence[int]) -> BatchParts:
        parts: BatchParts = []
        while len(parts) < len(indices):
            piece = slice(len(parts), len(parts) + protocol.PUSH_PIECE)
            rest = indices[piece]
            body = self._link.call(protocol.PARTS, protocol.parts(rest.tobytes()), f"the parts of {len(rest)} samples", protocol.A_PARTS)
            found = read_parts(body, lengths[piece])
            parts = [*parts, *found] if parts else found
        return parts

    # Orders and state.

    def push_order(self, epoch: int, rank: int, indices: Iterable[int] | Sequence[Sequence[int]] | Order) -> None:
        """Gives the server the order of one epoch and rank.

        indices is a list of batches of any sizes, or a flat sequence that is cut by batch_size. Raises ArgumentError if the server refuses
        the order, as it does if another process reads in a different order.
        """
        require_numbers(epoch, rank)
        order = indices if isinstance(indices, Order) else self._order_of(indices)
        if max(order.sizes, default=0) > protocol.MAX_BATCH:
            raise ArgumentError(f"push a batch of {max(order.sizes)} samples: a batch has at most {protocol.MAX_BATCH}")
        with self._link.pushing:
            for request in push_requests(epoch, rank, order):
                kind, _ = self._link.answer(request)
                require_kind(request, kind, protocol.A_OK)
            self._link.pushed[epoch, rank] = self._link.orders[epoch, rank] = order

    def _order_of(self, indices: Any) -> Order:
        if not hasattr(indices, "__len__"):
            indices = list(indices)
        is_flat_array = getattr(indices, "ndim", None) == 1  # an element of a numpy array may have a __len__ that raises
        if not is_flat_array and len(indices) and hasattr(indices[0], "__len__"):
            return Order.of_batches(indices)
        flat = u32_array(indices, "index")
        if self.batch_size <= 0:
            raise ArgumentError("push a flat order: this job has no batch size; push a list of batches")
        return Order.cut(flat, self.batch_size)

    @property
    def pushing(self) -> threading.RLock:
        """The lock that push_order holds. While a caller holds it, no other thread pushes an order."""
        return self._link.pushing

    def forget_orders(self, before: int, rank: int) -> None:
        """Drops this job's copies of the rank's orders before an epoch. They are then not pushed again to a restarted server.

        The last of them stays readable, so that its epoch can be read a second time.
        """
        for orders, end in ((self._link.pushed, before), (self._link.orders, before - 1)):
            for key in [key for key in orders if key[1] == rank and key[0] < end]:
                orders.pop(key, None)

    def stats(self) -> dict[str, Any]:
        """The server's status document, as `lcache status --json` prints it.

        Its "jobs" has an entry for each job, whose "id" is the job's token; "" for the server's own. The job that owns the log's order is
        first, and its entry has the figures of the log, the source and the memory, which all jobs share.
        """
        return protocol.read_json(self._link.call(protocol.STATUS, b"", "the status", protocol.A_JSON))

    def recent_stats(self) -> dict[str, Any] | None:
        """The status document, a few seconds old at most. Hardly waits; None if the server does not answer at once."""
        return self._poll.newest()

    def report(
        self, epoch: int | None = None, rank: int | None = None, *, loop_wait: float = 0.0, loop: float = 0.0, decode: float = 0.0, workers: int = 0
    ) -> None:
        """Reports times that only this process knows, for the status document. All are seconds since the last report.

        loop_wait: the training loop of a rank (default: job.rank) was blocked waiting for a batch. loop: the loop ran, including its waits.
        decode: this process decoded samples. workers: the number of processes that decode for the loop. Without an epoch only decode counts.
        report never waits. It does nothing on a broken connection, or if the server does not take reports.
        """
        if not self._takes_reports():
            return
        report = {"decode_seconds": max(decode, 0.0)}
        if epoch is not None:
            rank = self._rank if rank is None else rank
            require_numbers(epoch, rank)
            report.update(epoch=epoch, rank=rank, loop_wait_seconds=max(loop_wait, 0.0), loop_seconds=max(loop, 0.0), workers=min(workers, 0xFFFF))
        self._link.notify(protocol.REPORT, protocol.report(report))

    def report_unplaced(self, epoch: int, rank: int, first: int, count: int) -> None:
        """Reports that count batches of an epoch, from number first on, were requested without a position, because the order was not pushed yet."""
        if count and self._takes_reports():
            self._link.notify(protocol.REPORT, protocol.report({"epoch": epoch, "rank": rank, "first": first, "had": count}))

    def _takes_reports(self) -> bool:
        return "report" in self.info.features

    def _warn(self, text: str) -> None:
        """Logs the first warning of this job. Later ones would repeat it in other words."""
        if not self._warned:
            self._warned = True
            _log.warning(text)
