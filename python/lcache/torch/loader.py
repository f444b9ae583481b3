"""torch's DataLoader with lcache's course, state and timing; and the same for a loader that was built elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.utils.data

from ..errors import Error
from .sampler_copy import Seeded
from .order_ahead import Course, Resume
from .epoch_report import Report
from .wrappers import Route
from .sampler import BatchSampler, Watching

_VERSION = 1


class _Watched:
    """What watch() adds to a loader's class. The machinery itself is in the batch sampler."""

    # Not super(): a loader can take on another class only if that has the same first base, so watch() copies these methods.
    _lcache_above: Any = torch.utils.data.DataLoader

    def __iter__(self) -> Iterator[Any]:
        course = getattr(self.batch_sampler, "course", None)
        if course is None:
            loop = _Loop(self, self._lcache_above.__iter__(self))
        else:
            course.check_world()
            course.looped = True  # while the sampler's iterators are made, and workers' first batches are drawn
            try:
                loop = _Loop(self, self._lcache_above.__iter__(self))
            finally:
                course.looped = False
        self.__dict__["_lcache_progress"] = loop.progress
        return loop

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch. Without it the loader counts."""
        above = getattr(self._lcache_above, "set_epoch", None)
        if above is not None:
            above(self, epoch)
        self._course.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the training loop is, as JSON: what it got counts, not what was prefetched. Between epochs: the beginning of the next one."""
        course, progress = self._course, self.__dict__.get("_lcache_progress")
        world, _ = course.place
        epoch, consumed, before = course.next_epoch, 0, 0
        if progress is not None and progress.count and not progress.over and course._asked is None:
            epoch, consumed, before = course.epoch, course.skipped + progress.count, course.before
        elif course._resume is not None and course._resume.epoch == epoch:
            at = course._resume
            return self._state(at.epoch, at.consumed, at.world, at.batch_size, at.before, at.digest)
        size = getattr(self.batch_sampler, "batch_size", None)
        return self._state(epoch, consumed, world, size, before, course.digest(epoch))

    def _state(self, epoch: int, consumed: int, world: int, batch_size: int | None, before: int, digest: str | None) -> dict[str, Any]:
        state = {"v": _VERSION, "seed": self._course.seed(), "epoch": epoch, "consumed": consumed, "world": world, "batch_size": batch_size,
                 "fingerprint": self._fingerprint(), "order_digest": digest}
        return {**state, "before": before} if before else state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next iteration goes on where the state was taken, with any number of workers, world size or batch size. The order's
        digest is compared when it begins."""
        if state.get("v") != _VERSION:
            raise Error(f"the loader's state has version {state.get('v')}, this lcache knows {_VERSION}")
        if state["fingerprint"] != self._fingerprint():
            raise Error(f"the loader's state is of another dataset: fingerprint {state['fingerprint']}, here {self._fingerprint()}")
        course = self._course
        if course.draws:
            course.reseed(state["seed"])
        elif state["seed"] != course.seed():
            raise Error(f"the loader's state has seed {state['seed']}, this loader {course.seed()}: give it the same")
        self.__dict__.pop("_lcache_progress", None)
        course.resume(Resume(state["epoch"], state["consumed"], state["world"], state["batch_size"] or 0, state.get("before", 0), state["order_digest"]))

    @property
    def _course(self) -> Course:
        course = getattr(self.batch_sampler, "course", None)
        if course is None:
            raise Error("this loader has no batches of indices to follow: it needs a map-style dataset and a batch size")
        return course

    def _fingerprint(self) -> str | None:
        route = self._course.route
        found = [leaf.job.fingerprint for leaf in route.leaves] if route is not None else []
        return "+".join(found) if found else None


class _Progress:
    """How far a training loop is. The loader keeps it, and not the loop itself, which may refer to the loader."""

    def __init__(self) -> None:
        self.count = 0  # batches that it got
        self.over = False


class _Loop:
    """An iterator over a loader that counts what the training loop gets, and how long it waited for it."""

    def __init__(self, loader: Any, inner: Iterator[Any]) -> None:
        self._inner = inner
        self._course = getattr(loader.batch_sampler, "course", None)
        self.progress = _Progress()
        self._report = Report(self._course, loader)

    def __iter__(self) -> _Loop:
        return self

    def __next__(self) -> Any:
        asked = time.perf_counter()
        if self.progress.count == 1 and self._course is not None:
            self._course.go_on()
        try:
            batch = next(self._inner)
        except StopIteration:
            if not self.progress.over:
                self.progress.over = True
                self._report.end(asked)
            raise
        self.progress.count += 1
        self._report.got(asked, time.perf_counter())
        return batch

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":
            raise AttributeError(name)
        return getattr(self._inner, name)


def watch(loader: Any) -> Any:
    """Lets lcache follow a DataLoader that was built elsewhere (accelerate, Lightning, Trainer): the same loader, which from now on pushes
    its coming order, counts, and has state_dict, load_state_dict and set_epoch. Call it last, on what the training loop iterates over."""
    kind = type(loader)
    if hasattr(kind, "_lcache_above"):
        return loader
    added = {name: value for name, value in vars(_Watched).items() if not name.startswith("__") or name == "__iter__"}
    if hasattr(type(_base(loader)), "state_dict"):
        del added["state_dict"], added["load_state_dict"]  # torchdata's has its own
    watched = type(kind.__name__, (kind,), {**added, "__module__": kind.__module__, "__qualname__": kind.__qualname__, "_lcache_above": kind})
    object.__dict__["__class__"].__set__(loader, watched)  # accelerate's loaders have a property of that name
    _follow(loader)
    return loader


def _base(loader: Any) -> Any:
    """The torch DataLoader itself: accelerate's hold one."""
    return vars(loader).get("base_dataloader", loader)


def _follow(loader: Any) -> None:
    inner = getattr(loader, "batch_sampler", None)
    if inner is None:
        return
    if type(inner) is torch.utils.data.BatchSampler:
        inner = BatchSampler(inner.sampler, inner.batch_size, inner.drop_last)
    elif not hasattr(inner, "course"):
        inner = Watching(inner)
    vars(_base(loader))["batch_sampler"] = inner  # torch refuses to have it set; nothing was iterated yet
    inner.course.bind(loader.dataset, loader.generator)
    inner.course.within(loader)
    route: Route = inner.course.route
    if not route.leaves:
        inner.course.once("route", f"the dataset {type(loader.dataset).__name__} does with indices what lcache does not know: nothing is pushed, which costs speed")


class DataLoader(_Watched, torch.utils.data.DataLoader):
    """torch's DataLoader, watched. seed=S is short for generator=torch.Generator().manual_seed(S). Without both, everything is drawn from
    torch's default generator as torch's loader does; the seed that it draws for the first epoch's order is the seed of all of them."""

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Any = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Any = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        seed: int | None = None,
        **more: Any,
    ) -> None:
        if generator is None and seed is not None:
            generator = Seeded().manual_seed(seed)
        super().__init__(
            dataset, batch_size, shuffle, sampler, batch_sampler, num_workers, collate_fn, pin_memory, drop_last, timeout, worker_init_fn,
            multiprocessing_context, generator, **more,
        )
        self.seed = seed
        _follow(self)


