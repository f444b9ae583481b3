"""torch's DataLoader, which also pushes its order in advance, saves its state and measures times; and watch(), which adds this to any other loader."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import torch
import torch.utils.data

from ..errors import Error
from ._order import frameworks, tagged_batch
from ._order.order_ahead import OrderAhead
from ._order.resume import from_state, to_state
from ._order.sampler_copy import SpawnableGenerator
from ._order.wrappers import holds_dataset
from .epoch_report import EpochReport
from .headspace_run import halved
from .loop_metrics import metrics
from .sampler import BatchSampler, watched_sampler


class _WatchedLoader:
    """The methods that watch() adds to a loader's class. The OrderAhead itself belongs to the batch sampler."""

    # The class whose methods these override. super() does not work: a loader's class can only be replaced by one with the same first base, so watch()
    # copies these methods into a new class.
    _lcache_above: Any = torch.utils.data.DataLoader

    batch_sampler: Any

    def __iter__(self) -> Iterator[Any]:
        ahead, before = getattr(self.batch_sampler, "order_ahead", None), self.__dict__.get("_lcache_progress")
        if ahead is None:
            loop = _Loop(self, self._lcache_above.__iter__(self))
        else:
            ahead.check_world()
            if before is not None and not before.over and before.count:
                ahead.note_left(before.count)
            ahead.in_loop = True  # while the sampler's iterators are made and the workers' first batches are drawn
            try:
                loop = _Loop(self, self._lcache_above.__iter__(self))
            finally:
                ahead.in_loop = False
        loop.progress.report = None if before is None else before.report
        self.__dict__["_lcache_progress"] = loop.progress
        return halved(loop, self)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration. By default the loader counts epochs."""
        above = getattr(self._lcache_above, "set_epoch", None)
        if above is not None:
            above(self, epoch)
        self._order_ahead.set_epoch(epoch)

    @property
    def job_token(self) -> str | None:
        """The `id` of this loader's job in the status document. None: that of its dataset's job, or the loader has not begun."""
        return self._order_ahead.token

    def state_dict(self) -> dict[str, Any]:
        """The position of the training loop, as JSON: {v, seed, epoch, consumed, world, batch_size, fingerprint, order_digest}, and bad if bad= has samples.

        consumed counts the batches that the loop received, not those that were prefetched. Between epochs the position is the beginning of the next one.
        """
        ahead, progress = self._order_ahead, self.__dict__.get("_lcache_progress")
        received = progress.count if progress is not None and not progress.over else 0
        return to_state(ahead.position(received), ahead.seed(), self._fingerprint(), ahead.left_out)

    def metrics(self) -> dict[str, float]:
        """Numbers of the current epoch of the training loop, or of the last one, with keys as "lcache/wait_share". Empty before the first batch.

        For wandb.log and the like. It may be called at each step: it hardly waits for the server, and leaves out what it does not know.
        """
        progress = self.__dict__.get("_lcache_progress")
        return {} if progress is None or progress.report is None else metrics(progress.report)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next iteration continues at the position of the state. The number of workers, the world size and the batch size may differ.

        Raises Error for a state of another dataset, version, seed or list of bad samples. The iteration raises Error if the digest of the order differs.
        """
        at = from_state(state, self._fingerprint(), self._order_ahead.left_out)
        self._order_ahead.take_seed(state["seed"])
        self.__dict__.pop("_lcache_progress", None)
        self._order_ahead.resume(at)

    @property
    def _order_ahead(self) -> OrderAhead:
        ahead: OrderAhead | None = getattr(self.batch_sampler, "order_ahead", None)
        if ahead is None:
            raise Error("follow this loader: it has no batches of indices; give it a map-style dataset and a batch size")
        return ahead

    def _fingerprint(self) -> str | None:
        translation = self._order_ahead.translation
        found = [leaf.job.fingerprint for leaf in translation.leaves] if translation is not None else []
        return "+".join(found) if found else None


class _Progress:
    """The progress of a training loop. The loader keeps this object instead of the loop, which may refer to the loader."""

    def __init__(self) -> None:
        self.count = 0  # batches that the loop received
        self.over = False  # the epoch ended
        self.report: EpochReport | None = None  # of the epoch of the last received batch

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "report": None}


class _Loop:
    """An iterator over a loader. It counts the batches that the training loop receives, and measures the waits for them."""

    def __init__(self, loader: Any, inner: Iterator[Any]) -> None:
        self._inner = inner
        self._order_ahead: OrderAhead | None = getattr(loader.batch_sampler, "order_ahead", None)
        self.progress = _Progress()
        self._report = EpochReport(self._order_ahead, loader)
        self._paused: float | None = None  # the time since which the training loop gets its batches from elsewhere

    def __iter__(self) -> _Loop:
        return self

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Within it the training loop gets its batches from elsewhere. The report excludes this time and these reads."""
        self._paused = time.perf_counter()
        try:
            yield
        finally:
            self._end_pause(time.perf_counter())

    def _end_pause(self, now: float) -> None:
        if self._paused is not None:
            self._report.leave_out(self._paused, now)
            self._paused = None

    def __next__(self) -> Any:
        asked = time.perf_counter()
        if self.progress.count == 1 and self._order_ahead is not None:
            self._order_ahead.go_on()
        try:
            batch = next(self._inner)
        except StopIteration:
            if not self.progress.over:
                self.progress.over = True
                if self._paused is not None:
                    asked = time.perf_counter()
                    self._end_pause(asked)
                self._report.end(asked)
            raise
        finally:
            tagged_batch.forget_iterated()  # later requests of the program itself are not the loader's
        self.progress.count += 1
        self.progress.report = self._report
        if self._paused is None:
            self._report.note_batch(asked, time.perf_counter())
            self._report.note_last()
        return batch

    def __len__(self) -> int:
        return len(self._inner)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":
            raise AttributeError(name)
        return getattr(self._inner, name)


def watch(loader: Any) -> Any:
    """Watches a DataLoader that was built elsewhere (accelerate, Lightning, Trainer), and returns the same object.

    From now on the loader pushes its order in advance, counts batches, and has state_dict, load_state_dict and set_epoch. Call watch last, on the loader
    that the training loop iterates over. For a wrapper that has a DataLoader as its attribute `loader`, such as timm's PrefetchLoader, it watches the
    DataLoader inside. Raises TypeError for anything else.
    """
    if not frameworks.is_loader(loader):
        inner = getattr(loader, "loader", None)
        if not frameworks.is_loader(inner):
            raise TypeError(f"watch takes a DataLoader, or an object that has one as its attribute `loader`, not {type(loader).__name__}")
        watch(inner)
        return loader
    kind = type(loader)
    if hasattr(kind, "_lcache_above"):
        return loader
    added = {name: value for name, value in vars(_WatchedLoader).items() if not name.startswith("__") or name == "__iter__"}
    added["__reduce_ex__"] = _reduced
    if frameworks.has_own_state(loader):
        del added["state_dict"], added["load_state_dict"]
    watched = type(kind.__name__, (kind,), {**added, "__module__": kind.__module__, "__qualname__": kind.__qualname__, "_lcache_above": kind})
    frameworks.set_class(loader, watched)
    _watch_batch_sampler(loader)
    return loader


def _reduced(loader: Any, protocol: Any) -> Any:
    """The pickle of a watched loader: a loader of its original class, which is watched again."""
    state = {name: value for name, value in vars(loader).items() if name != "_lcache_progress"}
    return _watched_again, (loader._lcache_above, state)


def _watched_again(kind: Any, state: dict[str, Any]) -> Any:
    loader = kind.__new__(kind)
    vars(loader).update(state)
    return watch(loader)


def _watch_batch_sampler(loader: Any) -> None:
    """Replaces a loader's batch sampler, if it has one, by one with an OrderAhead."""
    inner = getattr(loader, "batch_sampler", None)
    if inner is None:
        return
    if type(inner) is torch.utils.data.BatchSampler:
        inner = BatchSampler(inner.sampler, inner.batch_size, inner.drop_last)
    elif not hasattr(inner, "order_ahead"):
        inner = watched_sampler(inner)
    frameworks.set_batch_sampler(loader, inner)
    ahead: OrderAhead = inner.order_ahead
    ahead.bind(loader.dataset, loader.generator)
    ahead.within(loader)
    if ahead.translation is None or not ahead.translation.leaves:
        kind = type(loader.dataset).__name__
        if holds_dataset(loader.dataset):
            ahead.once("route", f"the dataset {kind} changes indices in an unknown way: orders are not pushed, which costs speed")
        else:
            ahead.once("route", f"{kind} contains no lcache dataset: its loader works like torch's", logging.INFO)


_T_co = TypeVar("_T_co", covariant=True)


class DataLoader(_WatchedLoader, torch.utils.data.DataLoader[_T_co], Generic[_T_co]):
    """torch's DataLoader, watched. seed=S is short for generator=torch.Generator().manual_seed(S).

    Without seed and generator, it draws everything from torch's default generator, as torch's loader does. The seed that it draws for the first epoch's
    order is then used for all epochs.
    """

    def __init__(
        self,
        dataset: torch.utils.data.Dataset[_T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: torch.utils.data.Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: torch.utils.data.Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[_T_co]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        seed: int | None = None,
    ) -> None:
        if generator is None and seed is not None:
            generator = SpawnableGenerator().manual_seed(seed)
        # in_order exists since torch 2.6, and pin_memory_device may be removed.
        more = {name: value for name, value, usual in (("pin_memory_device", pin_memory_device, ""), ("in_order", in_order, True)) if value != usual}
        super().__init__(
            dataset, batch_size, shuffle, sampler, batch_sampler, num_workers, collate_fn, pin_memory, drop_last, timeout, worker_init_fn,
            multiprocessing_context, generator, prefetch_factor=prefetch_factor, persistent_workers=persistent_workers, **more,
        )
        self.seed = seed
        _watch_batch_sampler(self)
