"""Importance: a job whose order the server draws from the losses that the training loop reports.

    job.importance("impact", cache="2GiB")
    for epoch in range(job.epochs):
        for batch in job.epoch(epoch):
            losses = ...                        # one for each sample
            job.observe(batch.indices, losses)
"""

from __future__ import annotations

import json
import logging
import os
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ._client import protocol
from ._client.environment import launched_world
from ._client.orders import require_numbers, u32_array
from .arrays import numpy_module
from .described import Described
from .errors import ArgumentError, Error
from .neighbour_graph import GraphBank, hnswlib_module
from .neighbours import MOST, Bank, Options, Refused
from .observer import Irreducible, Observer

if TYPE_CHECKING:
    from .batch import Batch

_log = logging.getLogger("lcache")

PAGE = 1 << 20  # indices in one request


def asked(rank: int, method: str, options: dict[str, Any], params: dict[str, Any], own: dict[str, Any]) -> bytes:
    """The body of IMPORTANCE. own are parameters that the server only compares between ranks. Raises ArgumentError for values that JSON can't represent."""
    if options.get("seed") is not None:
        options["seed"] = str(options["seed"])  # JSON's numbers can't represent every seed
    try:
        client = {name: str(value) for name, value in own.items()}
        return json.dumps({"method": method, "rank": rank, "run": os.urandom(8).hex(), "params": params, "client": client, **options}).encode()
    except (TypeError, ValueError) as e:
        raise ArgumentError(f"importance: {e}") from None


def _bank(params: dict[str, Any], own: dict[str, Any], job: Observed) -> Callable[[], Bank]:
    """Returns a function that makes the job's bank, for use once the server has accepted. Moves the parameters that only the client uses from params to own."""
    own.update((name, params.pop(name)) for name in ("lam", "alpha", "normalise") if params.get(name) is not None)
    k = {} if params.get("k") is None else {"k": params["k"]}  # the server needs it, too
    options, way = Options(**own, **k), params.pop("neighbours", None)
    _ = options.radius  # raises
    numpy_module("importance: spider needs")
    if way not in (None, "auto", "exact", "hnswlib") and not callable(way):
        raise ArgumentError(f'importance: neighbours={way!r}: give "auto", "exact", "hnswlib" or an lcache.torch.Neighbours')
    samples = job.info.samples
    if way in (None, "auto") and samples > MOST:
        if hnswlib_module() is None:
            raise ArgumentError(
                f"importance: spider compares each batch with all {samples} samples, which is slow on a CPU above {MOST}: install hnswlib, give "
                'neighbours=lcache.torch.Neighbours("cuda"), or give neighbours="exact" to compare anyway'
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
        """Lets the server draw this job's orders by importance. method is "impact", "shade" or "spider". Call it in every rank, before its first batch.

        Call it with the same arguments in all ranks; a second call with them changes nothing. name identifies the job's state, also after a restart
        of the server. lag is the age, in epochs, of the losses that an order is drawn from: 0, 1 or "split"; None: by the layout. params are those of
        the method; docs/importance.md lists them. Raises ArgumentError for invalid arguments, and for arguments that differ from an earlier call's.
        """
        if "importance" not in self._link.info.features:
            raise Error("importance: the server is an older release without importance: stop it with lcache stop, and a newer one starts")
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
        accepted = protocol.read_importance(self._link.call(protocol.IMPORTANCE, body, f"importance {method}", protocol.A_JSON))
        if self._observer is None:
            if accepted.get("ignored"):
                _log.warning("importance: %s of %s has no effect", ", ".join(map(str, accepted["ignored"])), method)
            observer = Observer(self._link, method, accepted)
            observer.gathers = policy != "paper"
            observer.bank, observer.irreducible = None if bank is None else bank(), irreducible
            self._link.importance, self._link.first, self._observer = body, observer.flush, observer

    def _learn_rank(self, world_size: int | None) -> int | None:
        """Takes the launcher's rank if none was given. Otherwise the server would mix the observations of ranks that have the same number.

        Returns the number of the job's ranks on this machine. None: the launcher doesn't say, or its world is not the job's.
        """
        launched = launched_world()
        if launched.size != (world_size or self.info.world):
            return None
        if not self._rank_given and launched.size > 1:
            self._rank, self._rank_given = launched.rank, True
        return None if launched.local_ranks is None else len(launched.local_ranks)

    def observe(self, indices: Any, losses: Any, embeddings: Any = None, *, epoch: int | None = None, rank: int | None = None) -> None:
        """Reports the losses of samples to the server, in one call for each batch: tensors, arrays or lists. Never raises, and never waits.

        spider takes embeddings, one row for each sample, and ignores losses. It counts neighbours in this process, and reports the counts. The default
        of epoch is that of the last batch that this job returned. Invalid observations are counted, and the first one is logged as a warning.
        """
        observer = self._observer
        try:
            if observer is None:
                return
            rank = self._rank if rank is None else rank
            if observer.bank is None and embeddings is not None:
                raise ArgumentError(f"observe with embeddings: only spider takes them, and this job has {observer.method}")
            if observer.bank is None:
                observer.observe(indices, losses, epoch, rank)
            elif embeddings is None:
                observer.bank.exchange(None, None)
                raise Refused("shape", 1, "spider observes embeddings: give embeddings=, one row for each sample")
            else:
                observer.observe_embeddings(observer.bank, indices, embeddings, epoch, rank)
        except Exception as e:  # noqa: BLE001  an observation must not end the training
            if observer is not None:
                observer.refuse(e)

    def end_epoch(self, accuracy: float | None = None, loss: float | None = None, *, epoch: int | None = None, rank: int | None = None) -> None:
        """Reports the end of an epoch of this rank, with its accuracy and loss. Optional, because a request for the next epoch implies it. Never waits."""
        observer = self._required()
        numbers = [None if x is None else float(x) for x in (accuracy, loss)]
        observer.end_epoch(numbers[0], numbers[1], epoch, self._rank if rank is None else rank)

    def reevaluate(self, rank: int | None = None) -> Iterator[Batch]:
        """Yields, in batches, the samples whose losses the method needs before the next epoch. Run the model on them, and observe their losses.

        Empty if the method needs none, as before the end of its warm-up.
        """
        observer, rank = self._required(), self._rank if rank is None else rank
        observer.flush(self._link.deadline())
        indices = self._pages(protocol.REEVALUATE, protocol.NOWHERE, rank, "the samples to evaluate again")
        size = max(self._batch_of(), 1)
        observer.reevaluates = True
        try:
            for at in range(0, len(indices), size):
                yield self.get(indices[at : at + size])
        finally:
            observer.reevaluates = False

    def order(self, epoch: int, rank: int | None = None) -> array[int]:
        """The order of a rank (default: this process's) in an epoch. Waits until the server has drawn it, after all ranks have ended the epoch before."""
        observer, rank = self._required(), self._rank if rank is None else rank
        require_numbers(epoch, rank)
        observer.flush(self._link.deadline())
        order = self._pages(protocol.ORDER, epoch, rank, f"the order of epoch {epoch} rank {rank}")
        observer.epoch = epoch
        return order

    def weights(self, indices: Iterable[int]) -> array[float]:
        """1 / (expected uses of a sample in the loop's current epoch), scaled to a mean of 1.

        Multiplied with the losses, they make the expected gradient of a drawn epoch that of all samples.
        """
        observer, wanted = self._required(), u32_array(indices, "index")
        if len(wanted) > protocol.MAX_WEIGHTS:
            raise ArgumentError(f"weights of {len(wanted)} samples: request at most {protocol.MAX_WEIGHTS} at once")
        body = self._link.call(protocol.WEIGHTS, protocol.weights(observer.epoch, wanted.tobytes()), "weights", protocol.A_WEIGHTS)
        return protocol.read_weights(body, len(wanted))

    @property
    def observer(self) -> Observer:
        """For other modules of lcache. Raises Error for a job without importance."""
        return self._required()

    def _required(self) -> Observer:
        if self._observer is None:
            raise Error("this job has no importance: call job.importance first")
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
