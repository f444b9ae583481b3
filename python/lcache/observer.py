"""Observations of a training loop, such as losses, on their way to the server.

Several observations are sent together, because one system call and one wake-up of the server for each would cost more than the observation itself. They
wait in a queue of 64 until the socket takes them. A full queue drops the oldest observation, so that the training loop never waits.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
import zlib
from array import array
from collections import deque
from typing import TYPE_CHECKING, Any

from ._client import protocol
from ._client.orders import u32_array
from .errors import ArgumentError
from .neighbours import Bank, Refused

if TYPE_CHECKING:
    from ._client.link import Link

_log = logging.getLogger("lcache")

QUEUE = 64  # observations that may wait for the socket
GATHER = 16  # observations sent together
GATHER_SECONDS = 2.0  # the next observation after that time sends the queue
AT_ONCE = 64 << 10  # bytes sent together


class Irreducible:
    """Irreducible losses: those of another model. They are subtracted from the training's losses, so that samples that can't be learnt do not look important.

    The file has one little-endian float32 for each sample of the dataset.
    """

    def __init__(self, path: str | os.PathLike[str], samples: int) -> None:
        """Raises ArgumentError for a file that can't be read, has another size, or has a value that is not finite."""
        shown = f"importance: irreducible={os.fspath(path)}"
        try:
            with open(path, "rb") as f:
                data = f.read(4 * samples + 1)
        except OSError as e:
            raise ArgumentError(f"{shown}: {e.strerror}") from None
        if len(data) != 4 * samples:
            size = f"{len(data)} bytes" if len(data) < 4 * samples else "more bytes"
            raise ArgumentError(f"{shown} has {size}: {samples} samples need {4 * samples} bytes, a float32 for each")
        self._losses = array("f", data)
        self.name = f"{os.path.basename(path)} (crc {zlib.crc32(data):08x})"  # so that ranks with different files have different names
        if not all(map(math.isfinite, self._losses)):
            raise ArgumentError(f"{shown} has losses that are not finite")

    def subtracted(self, indices: array[int], losses: array[float]) -> array[float]:
        """The losses minus their irreducible parts, but at least 0."""
        own, known = self._losses, len(self._losses)
        return array("f", (x if i >= known else 0.0 if x < own[i] else x - own[i] for i, x in zip(indices, losses)))


class Observer:
    """The observations of one process for one job. Threads may share it."""

    def __init__(self, link: Link, method: str, accepted: dict[str, Any]) -> None:
        """accepted has the values that the server accepted: world_size, batch_size and more."""
        self.link, self.method, self.accepted = link, method, accepted
        self.ended = -1  # the last epoch whose end the loop has reported
        self.epoch = 0  # the loop's current epoch
        self.bank: Bank | None = None  # for a method that observes neighbours
        self.irreducible: Irreducible | None = None
        self.gathers = True  # the server does not need observations before the end of the epoch
        self.reevaluates = False  # the loop evaluates unstable samples again
        self.refused = self.dropped = self._told_dropped = 0
        self._unsent: dict[str, int] = {}  # refused observations by reason, not yet reported
        self._numbers: dict[tuple[int, int, int], int] = {}  # by kind, epoch and rank: the number of observations so far
        self._queue: deque[tuple[int, bytes]] = deque()
        self._sent = 0.0  # the time of the last send
        self._lock = threading.RLock()  # guards the fields above; not held during a send. A signal's handler may take it again
        self._sender: object | None = None  # the call that sends; None: no thread sends
        self._sending_thread = 0  # the thread of that call, or of the last one

    def observe(self, indices: Any, losses: Any, epoch: int | None, rank: int) -> None:
        """Queues an observation. If indices and losses have different lengths, it queues an empty one, which the server counts."""
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
        """Counts the neighbours of a batch, and queues the counts. Raises Refused for a wrong number of rows, or values that are not finite."""
        column = _indices(indices)
        if len(column) > protocol.MAX_OBSERVED:
            raise Refused("shape", 1, f"observe {len(column)} samples: give at most {protocol.MAX_OBSERVED} at once")
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
            raise Refused("notfinite", count, f"{count} embeddings have values that are not finite")

    def _number(self, kind: int, epoch: int, rank: int) -> int:
        """The number of an observation. The lock is held."""
        number = self._numbers.get((kind, epoch, rank), 0)
        self._numbers[kind, epoch, rank] = number + 1
        for key in [key for key in self._numbers if key[1] < epoch - 1] if number == 0 else ():
            del self._numbers[key]
        return number

    def end_epoch(self, accuracy: float | None, loss: float | None, epoch: int | None, rank: int) -> None:
        """Queues the end of an epoch. The next observations belong to the next epoch."""
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
        """Sends the queue if it is long or old enough."""
        if not self.gathers or len(self._queue) >= GATHER or time.monotonic() - self._sent >= GATHER_SECONDS:
            self.flush()

    def flush(self, deadline: float | None = None) -> None:
        """Sends the queue as far as the socket takes it at once. With a deadline it sends all of it, because the next request depends on it."""
        me, call = threading.get_ident(), object()
        try:
            while self._sender is not call:
                with self._lock:
                    if self._sender is None:
                        self._sender, self._sending_thread = call, me
                        break
                if deadline is None or self._sending_thread == me or time.monotonic() >= deadline:
                    return  # another call is sending, and sends these later
                time.sleep(0.001)
            session = self.link.session
            self._sent = time.monotonic()
            while session is not None and session.usable and not self.link.closed:
                frames = self._first()
                if not frames or not session.send_now(frames, deadline is not None):
                    return
                with self._lock:
                    for frame in frames:
                        if self._queue and self._queue[0] is frame:  # otherwise a full queue has dropped it meanwhile
                            self._queue.popleft()
        finally:
            if self._sender is call:
                self._sender = None

    def _first(self) -> list[tuple[int, bytes]]:
        """The frames to send together. They stay in the queue until they are sent: after an interrupt they are sent twice, and the server counts them once."""
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
        """Counts an invalid observation, and logs the first as a warning."""
        self.refused += 1
        if isinstance(why, Refused):
            self._unsent[why.reason] = self._unsent.get(why.reason, 0) + why.count
        if self.refused == 1:
            _log.warning("an observation is ignored, and later ones like it: %s", why)


def _indices(values: Any) -> array[int]:
    """Indices as u32. An invalid index becomes one that no dataset has."""
    try:
        return u32_array(values, "index")
    except ArgumentError:
        listed = values.tolist() if hasattr(values, "tolist") else values
        return array("I", [i if 0 <= i < protocol.NOWHERE else protocol.NOWHERE for i in map(int, listed)])


def _floats(values: Any) -> array[float]:
    """Losses as f32, from a tensor, an array or any sequence. A buffer of f32 is copied directly, anything else through a list."""
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
