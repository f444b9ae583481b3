"""Importance: a job whose order the server draws by what the training loop observes of its samples.

    job.importance("impact", cache="2GiB")
    for epoch in range(job.epochs):
        for batch in job.epoch(epoch):
            losses = ...                        # one for each sample
            job.observe(batch.indices, losses)

Some observations are sent at once: to send each by itself, and to wake the server for it, costs more than to note it. They wait in a queue of 64 until the
socket takes them. A full queue drops the oldest: the training loop never waits.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ._client import protocol
from ._client.environment import launched_world
from ._client.orders import require_numbers, u32_array
from .arrays import numpy_module
from .described import Described
from .errors import ArgumentError, Error
from .irreducible import Irreducible
from .neighbour_graph import GraphBank, hnswlib_module
from .neighbours import MOST, Bank, Options, Refused

if TYPE_CHECKING:
    from ._client.link import Link
    from .batch import Batch

_log = logging.getLogger("lcache")

QUEUE = 64  # observations that wait for the socket
GATHER = 16  # observations that are sent together
GATHER_SECONDS = 2.0  # an observation waits no longer for others, if another one follows
AT_ONCE = 64 << 10  # bytes that are sent together
PAGE = 1 << 20  # indices asked for at once


class Observer:
    """What one process has to tell of one job. Threads may share it."""

    def __init__(self, link: Link, method: str, told: dict[str, Any]) -> None:
        """told is what the server answered: world_size, batch_size and more."""
        self.link, self.method, self.told = link, method, told
        self.ended = -1  # the last epoch that the loop said it had ended
        self.epoch = 0  # that the loop is in
        self.bank: Bank | None = None  # of a method that observes neighbours
        self.irreducible: Irreducible | None = None
        self.gathers = True  # the server has no use for observations before the epoch's end
        self.reevaluates = False  # the loop looks at unstable samples again
        self.refused = self.dropped = self._told_dropped = 0
        self._unsent: dict[str, int] = {}  # what was refused here, by reason, and not told yet
        self._numbers: dict[tuple[int, int, int], int] = {}  # by kind, epoch and rank: observations so far
        self._queue: deque[tuple[int, bytes]] = deque()
        self._sent = 0.0  # when the queue was sent last
        self._lock = threading.RLock()  # of the fields above; not held while something is sent. A signal's handler may take it again
        self._sender: object | None = None  # the call that sends; None: no thread does
        self._sending_thread = 0  # that of the call that sends, or has sent

    def observe(self, indices: Any, losses: Any, epoch: int | None, rank: int) -> None:
        """Queues an observation. Indices and losses of different lengths are sent as an observation of nothing, which the server counts."""
        columns = _indices(indices), _floats(losses)
        if len(columns[0]) != len(columns[1]) or len(columns[0]) > protocol.MAX_OBSERVED:
            columns = array("I"), array("f")
        if self.irreducible is not None:
            columns = columns[0], self.irreducible.subtracted(*columns)
        kind = protocol.REEVALUATED if self.reevaluates else protocol.LOSSES
        with self._lock:
            epoch = self.epoch if epoch is None else epoch
            number = self._number(kind, epoch, rank)
            self._put(protocol.OBSERVE, protocol.observe(kind, rank, epoch, number, columns[0].tobytes(), columns[1].tobytes()))
        self._flush_some()

    def observe_embeddings(self, bank: Bank, indices: Any, embeddings: Any, epoch: int | None, rank: int) -> None:
        """Finds the neighbours of a batch, and queues their numbers. Refused for embeddings that are not of these samples, or not finite."""
        column = _indices(indices)
        if len(column) > protocol.MAX_OBSERVED:
            raise Refused("shape", 1, f"{len(column)} samples: at most {protocol.MAX_OBSERVED} at once")
        with self._lock:
            epoch, refused, changes = self.epoch if epoch is None else epoch, bank.refused, bank.changes
            try:
                c = bank.observe(column, embeddings, epoch)
            finally:
                if bank.changes > changes:
                    self._put(protocol.EPOCH_END, protocol.epoch_end(protocol.NOWHERE, rank, None, None, {"changed": True}))
            number = self._number(protocol.COUNTS, epoch, rank)
            node = protocol.NOWHERE if c.node is None else c.node
            indices, same, other, near = c.indices.tobytes(), c.same.tobytes(), c.other.tobytes(), c.near.tobytes()
            self._put(protocol.OBSERVE, protocol.counts(rank, epoch, number, indices, same, other, node, near))
        self._flush_some()
        if bank.refused > refused:
            count = bank.refused - refused
            raise Refused("notfinite", count, f"{count} embeddings have numbers that are not finite")

    def _number(self, kind: int, epoch: int, rank: int) -> int:
        """The number of an observation. The lock is held."""
        number = self._numbers.get((kind, epoch, rank), 0)
        self._numbers[kind, epoch, rank] = number + 1
        for key in [key for key in self._numbers if key[1] < epoch - 1] if number == 0 else ():
            del self._numbers[key]
        return number

    def end_epoch(self, accuracy: float | None, loss: float | None, epoch: int | None, rank: int) -> None:
        """Queues the end of an epoch. The next observations are of the epoch after."""
        with self._lock:
            epoch = self.epoch if epoch is None else epoch
            self.ended = max(self.ended, epoch)
            self._make_room()
            unsent: dict[str, Any] = {"dropped": self.dropped - self._told_dropped, "refused": self._unsent, "off": self.bank is not None and self.bank.off}
            self._put(protocol.EPOCH_END, protocol.epoch_end(epoch, rank, accuracy, loss, {key: value for key, value in unsent.items() if value}))
            self._told_dropped, self._unsent = self.dropped, {}
        self.flush()

    def _put(self, kind: int, body: bytes) -> None:
        """The lock is held."""
        self._make_room()
        self._queue.append((kind, body))

    def _make_room(self) -> None:
        """Drops the oldest observation that waits if the queue is full. The lock is held."""
        if len(self._queue) >= QUEUE:
            del self._queue[next((k for k, (kind, _) in enumerate(self._queue) if kind == protocol.OBSERVE), 0)]
            self.dropped += 1

    def _flush_some(self) -> None:
        """Sends what waits, once it is worth it."""
        if not self.gathers or len(self._queue) >= GATHER or time.monotonic() - self._sent >= GATHER_SECONDS:
            self.flush()

    def flush(self, deadline: float | None = None) -> None:
        """Sends what waits, as far as the socket takes it at once; with a deadline, all of it: the server is about to be asked what follows from it."""
        me, call = threading.get_ident(), object()
        try:
            while self._sender is not call:
                with self._lock:
                    if self._sender is None:
                        self._sender, self._sending_thread = call, me
                        break
                if deadline is None or self._sending_thread == me or time.monotonic() >= deadline:
                    return  # another call sends, and what is queued now comes after it
                time.sleep(0.001)
            session = self.link.session
            self._sent = time.monotonic()
            while session is not None and session.usable and not self.link.closed:
                frames = self._first()
                if not frames or not session.tell_now(frames, deadline is not None):
                    return
                with self._lock:
                    for frame in frames:
                        if self._queue and self._queue[0] is frame:  # it is not, if the queue was full meanwhile
                            self._queue.popleft()
        finally:
            if self._sender is call:
                self._sender = None

    def _first(self) -> list[tuple[int, bytes]]:
        """The frames to send together, which stay in the queue: an interrupt before they are removed sends them twice, and the server counts them once."""
        frames: list[tuple[int, bytes]] = []
        size = 0
        with self._lock:
            for frame in self._queue:
                size += len(frame[1])
                if frames and size > AT_ONCE:
                    break
                frames.append(frame)
        return frames

    def refuse(self, why: Exception) -> None:
        """Counts an observation that can't be one, and warns of the first."""
        self.refused += 1
        if isinstance(why, Refused):
            self._unsent[why.reason] = self._unsent.get(why.reason, 0) + why.count
        if self.refused == 1:
            _log.warning("an observation is left out, and later ones like it: %s", why)


def _indices(values: Any) -> array[int]:
    """Indices as u32. One that is none becomes one that no dataset has."""
    try:
        return u32_array(values, "index")
    except ArgumentError:
        listed = values.tolist() if hasattr(values, "tolist") else values
        return array("I", [i if 0 <= i < protocol.NOWHERE else protocol.NOWHERE for i in map(int, listed)])


def _floats(values: Any) -> array[float]:
    """Losses as f32: of a tensor, an array or any sequence. A buffer of f32 is copied at once, anything else goes through a list."""
    if hasattr(values, "detach"):
        values = values.detach().reshape(-1).float().cpu()
        with contextlib.suppress(RuntimeError):  # torch without numpy
            values = values.numpy()
    try:
        view = memoryview(values)
        if view.format in ("f", "=f", "<f") and view.ndim == 1:
            return array("f", view.tobytes())
    except TypeError:
        pass
    return array("f", values.tolist() if hasattr(values, "tolist") else values)


def asked(rank: int, method: str, options: dict[str, Any], params: dict[str, Any], own: dict[str, Any]) -> bytes:
    """The body of IMPORTANCE. own are parameters that the server has no use for, but to compare ranks. ArgumentError for values that are no JSON."""
    if options.get("seed") is not None:
        options["seed"] = str(options["seed"])  # not every seed fits a number of JSON
    try:
        client = {name: str(value) for name, value in own.items()}
        return json.dumps({"method": method, "rank": rank, "run": os.urandom(8).hex(), "params": params, "client": client, **options}).encode()
    except (TypeError, ValueError) as e:
        raise ArgumentError(f"importance: {e}") from None


def _bank(params: dict[str, Any], own: dict[str, Any], job: Observed) -> Callable[[], Bank]:
    """Makes a job's bank, once the server has agreed. Moves parameters that the server has no use for from params to own."""
    own.update((name, params.pop(name)) for name in ("lam", "alpha", "normalise") if params.get(name) is not None)
    k = {} if params.get("k") is None else {"k": params["k"]}  # which the server needs, too
    options, way = Options(**own, **k), params.pop("neighbours", None)
    _ = options.radius  # raises
    numpy_module("importance: spider needs")
    if way not in (None, "auto", "exact", "hnswlib") and not callable(way):
        raise ArgumentError(f'importance: neighbours={way!r}: give "auto", "exact", "hnswlib" or an lcache.torch.Neighbours')
    samples = job.info.samples
    if way in (None, "auto") and samples > MOST:
        if hnswlib_module() is None:
            raise ArgumentError(
                f"importance: spider compares each batch with all {samples} samples, which takes long on a CPU above {MOST}: install hnswlib, give "
                'neighbours=lcache.torch.Neighbours("cuda"), or neighbours="exact" to do it all the same'
            )
        way = "hnswlib"
    if way == "hnswlib":
        if hnswlib_module() is None:
            raise ArgumentError('importance: neighbours="hnswlib" needs the package hnswlib: pip install hnswlib')
        way = GraphBank
    return lambda: (way if callable(way) else Bank)(job.labels(), options)


class Observed(Described):
    """The methods of a Job about importance."""

    _observer: Observer | None = None

    def importance(
        self,
        method: str,
        *,
        name: str = "default",
        cache: int | str | None = None,
        seed: int | None = None,
        batch_size: int | None = None,
        world_size: int | None = None,
        drop_last: bool | None = None,
        substitute: str | None = None,
        lag: int | str | None = None,
        policy: str = "next-use",
        draw: str = "systematic",
        **params: Any,
    ) -> None:
        """Lets the server draw this job's orders by importance: method is "impact", "shade" or "spider". Call it in every rank, before its first batch.

        Call it with the same arguments in all ranks; the same again changes nothing. name keeps the job's state apart from others', also over restarts
        of the server. lag is how many epochs old the losses are that an order is drawn from: 0, 1 or "split"; None: by the layout. params are the
        method's own; docs/importance.md lists them. Raises ArgumentError for what can't be, or differs from what was asked for before.
        """
        if "importance" not in self._link.info.features:
            raise Error("this server is an older one, which knows no importance: end it, and a newer one starts")
        options = {"name": name, "cache": cache, "seed": seed, "batch_size": batch_size, "world_size": world_size, "drop_last": drop_last}
        options.update(substitute=substitute, lag=lag, policy=policy, draw=draw)
        own: dict[str, Any] = {}
        bank = _bank(params, own, self) if method == "spider" else None
        path = params.pop("irreducible", None) if method == "impact" else None
        irreducible = None if path is None else Irreducible(path, self.info.samples)
        if irreducible is not None:
            own["irreducible"] = irreducible.name
        options["local_world_size"] = self._learn_rank(world_size)
        body = asked(self._rank, method, options, params, own)
        told = protocol.read_importance(self._link.call(protocol.IMPORTANCE, body, f"importance {method}", protocol.A_JSON))
        if self._observer is None:
            if told.get("ignored"):
                _log.warning("importance: %s of %s has no effect", ", ".join(map(str, told["ignored"])), method)
            observer = Observer(self._link, method, told)
            observer.gathers = policy != "paper"
            observer.bank, observer.irreducible = None if bank is None else bank(), irreducible
            self._link.importance, self._link.first, self._observer = body, observer.flush, observer

    def _learn_rank(self, world_size: int | None) -> int | None:
        """Takes the launcher's rank if nobody gave one: what two ranks observe under one number would be taken for the same.

        Returns how many ranks of the job's world run on this machine. None: the launcher doesn't say, or its world is not the job's.
        """
        launched = launched_world()
        if launched.size != (world_size or self.info.world):
            return None
        if not self._rank_told and launched.size > 1:
            self._rank, self._rank_told = launched.rank, True
        return None if launched.local_ranks is None else len(launched.local_ranks)

    def observe(self, indices: Any, losses: Any, embeddings: Any = None, *, epoch: int | None = None, rank: int | None = None) -> None:
        """Tells the server the losses of samples, in one call for each batch: tensors, arrays or lists. Never raises, and never waits.

        spider takes embeddings, one row for each sample, and has no use for losses: it counts neighbours here, and tells the server how many. epoch is
        that of the last batch that this job handed out, if not given. What can't be an observation is counted, and warned of once.
        """
        observer = self._observer
        try:
            if observer is None:
                return
            rank = self._rank if rank is None else rank
            if observer.bank is None and embeddings is not None:
                raise ArgumentError(f"{observer.method} takes no embeddings")
            if observer.bank is None:
                observer.observe(indices, losses, epoch, rank)
            elif embeddings is None:
                observer.bank.exchange(None, None)
                raise Refused("shape", 1, "spider observes embeddings: give embeddings=, one row for each sample")
            else:
                observer.observe_embeddings(observer.bank, indices, embeddings, epoch, rank)
        except Exception as e:  # noqa: BLE001  the training is worth more than an observation
            if observer is not None:
                observer.refuse(e)

    def end_epoch(self, accuracy: float | None = None, loss: float | None = None, *, epoch: int | None = None, rank: int | None = None) -> None:
        """Says that this rank has ended an epoch, and how training went. Optional: asking for the next epoch says so, too. Never waits."""
        observer = self._required()
        numbers = [None if x is None else float(x) for x in (accuracy, loss)]
        observer.end_epoch(numbers[0], numbers[1], epoch, self._rank if rank is None else rank)

    def reevaluate(self, rank: int | None = None) -> Iterator[Batch]:
        """The samples whose newest losses the method wants to know before the next epoch, in batches: run the model on them, and observe their losses.

        Empty where the method has none, as before the end of its warm-up.
        """
        observer, rank = self._required(), self._rank if rank is None else rank
        observer.flush(self._link.deadline())
        indices = self._pages(protocol.REEVALUATE, protocol.NOWHERE, rank, "the samples to look at again")
        size = max(self._batch_of(), 1)
        observer.reevaluates = True
        try:
            for at in range(0, len(indices), size):
                yield self.get(indices[at : at + size])
        finally:
            observer.reevaluates = False

    def order(self, epoch: int, rank: int | None = None) -> array[int]:
        """What a rank (default: this process's) reads in an epoch. Waits until the server has drawn it: when all ranks have ended the epoch before."""
        observer, rank = self._required(), self._rank if rank is None else rank
        require_numbers(epoch, rank)
        observer.flush(self._link.deadline())
        order = self._pages(protocol.ORDER, epoch, rank, f"the order of epoch {epoch} rank {rank}")
        observer.epoch = epoch
        return order

    def weights(self, indices: Iterable[int]) -> array[float]:
        """1 / expected uses of samples in the epoch that the loop is in, with a mean of 1.

        With the losses multiplied by them, the gradient of a drawn epoch is that of all samples.
        """
        observer, wanted = self._required(), u32_array(indices, "index")
        if len(wanted) > protocol.MAX_WEIGHTS:
            raise ArgumentError(f"weights of {len(wanted)} samples: at most {protocol.MAX_WEIGHTS} at once")
        body = self._link.call(protocol.WEIGHTS, protocol.weights(observer.epoch, wanted.tobytes()), "weights", protocol.A_WEIGHTS)
        return protocol.read_weights(body, len(wanted))

    @property
    def observer(self) -> Observer:
        """For other modules of lcache. Raises Error for a job without importance."""
        return self._required()

    def _required(self) -> Observer:
        if self._observer is None:
            raise Error("this job asked for no importance: call job.importance first")
        return self._observer

    def _pages(self, kind: int, epoch: int, rank: int, what: str) -> array[int]:
        indices, total = array("I"), 1
        while len(indices) < total:
            body = self._link.call(kind, protocol.page(epoch, rank, len(indices), PAGE), what, protocol.A_INDICES)
            total, page = protocol.read_indices(body, len(indices), PAGE, self._link.info.samples)
            indices.frombytes(page.tobytes())
        return indices

    def _batch_of(self) -> int:
        asked = json.loads(self._link.importance or b"{}").get("batch_size")
        return int(asked or self._link.info.batch_size or 256)

    def labels(self) -> array[int]:
        raise NotImplementedError

    def get(self, indices: Iterable[int], at: tuple[int, int, int] | None = None) -> Batch:
        raise NotImplementedError
