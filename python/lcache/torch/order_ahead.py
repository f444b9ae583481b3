"""The course that a batch sampler will take: foreseen from copies of it, pushed to the server, and compared with what it then does.

A Course belongs to one batch sampler, its subject. Every epoch's batches come from the subject itself; copies only say what will come. The
order of an epoch is a function of the sampler, its seed and the epoch's number: generators of the sampler's own are set to the state
that they would have if every earlier epoch had run to its end, unless somebody else has set them meanwhile. Without any, the seed that
RandomSampler draws from torch's default generator for the first epoch stays (drawn_seed.py).
"""

from __future__ import annotations

import itertools
import logging
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed

from ..errors import Error
from . import ranks
from .sampler_copy import Generators, bounded, clone, quiet
from .drawn_seed import Drawn, lend
from .push import Publisher
from .wrappers import Route, dataset_of
from .generator_states import States

_log = logging.getLogger("lcache")

AHEAD = 2  # epochs foreseen beyond the one that begins: what is written while it is read, and the one after that

class Resume(NamedTuple):
    """Where to go on: `before` samples of the global order, and then `consumed` batches of batch_size on each of `world` ranks, are done."""

    epoch: int
    consumed: int
    world: int
    batch_size: int
    before: int
    digest: str | None


class Once:
    """Logs a message of each kind once."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, key: str, message: str, level: int = logging.WARNING) -> None:
        if key not in self._said:
            self._said.add(key)
            _log.log(level, message)


class Course:
    # Nothing that a course consists of refers to it, and it refers weakly to a subject that holds it: so a loader that is dropped is gone at
    # once, and with it its say in the order.

    def __init__(self, subject: Any, held: bool = False) -> None:
        """held: the subject holds this course."""
        self._held = held
        self._subject: Callable[[], Any] = weakref.ref(subject) if held else lambda: subject
        self.once = Once()
        self.route: Route | None = None
        self.epoch = -1  # that is being read, or was last
        self.skipped = 0  # batches of it that were done before a resume
        self.before = 0  # samples of its global order that were done in another world before a resume
        self.complete = False  # it was read to its end
        self.exact: bool | None = None  # whether all batches of it were as foreseen; None if nothing was foreseen
        self.looped = False  # the iterators that are made now are a training loop's, which calls go_on()
        self._bound: tuple[Any, Any] | None = None
        self._asked: int | None = None
        self._resume: Resume | None = None
        self._seen: int | None = None  # the sampler's own epoch at the last beginning
        self._stuck = False
        self._noted: tuple[int, str] | None = None  # the digest of an epoch that can't be told later
        self._states = States(self._subject)
        self._drawn = Drawn()
        self._publisher: Publisher | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Course:
        twin = memo.get(id(self.subject))
        return Course(twin, self._held and twin is not None)

    def __reduce__(self) -> Any:
        return Course, (self.subject, self._held)

    # What others ask and say.

    @property
    def subject(self) -> Any:
        return self._subject()

    def bind(self, dataset: Any, generator: Any = None) -> None:
        """The dataset that the batches are for, and the generator that the loader draws its base seed from."""
        self._bound = dataset, generator
        self._lead_to(dataset)
        self._states.bind(generator)

    def within(self, loader: Any) -> None:
        """The loader that goes over the subject: with persistent workers it draws a base seed for the first epoch alone."""
        self._states.persistent = bool(loader.persistent_workers) and loader.num_workers > 0

    def dealt(self, subject: Any) -> Course:
        """The course of a sampler that deals what this one's subject yields to ranks, from the same beginning on."""
        course = Course(subject)
        if self._bound is not None:
            course.bind(*self._bound)
        course._states.persistent = self._states.persistent
        course._asked, course._resume, course.epoch, course._drawn.seed = self._asked, self._resume, self.epoch, self._drawn.seed
        return course

    def _lead_to(self, dataset: Any) -> None:
        self.route = Route(dataset)
        self._publisher = Publisher(self.route, self.once) if self.route.leaves else None

    def seed(self) -> int | None:
        """What the order follows from, as far as it is a number and known yet."""
        if self.draws:
            return self._drawn.seed
        for s in ranks.chain(self.subject):
            for name in ("seed", "initial_seed"):
                if isinstance(getattr(s, name, None), int):
                    return int(getattr(s, name))
        return Generators(self.subject).seed()

    def set_epoch(self, epoch: int) -> None:
        self._asked = epoch
        holder = ranks.epoch_holder(self.subject)
        if holder is not None:
            holder.set_epoch(epoch)

    def resume(self, at: Resume) -> None:
        self._resume = at
        self.set_epoch(at.epoch)

    def check_world(self) -> None:
        """Warns if this is the loader of a process that is one of many and goes over all samples."""
        dist = torch.distributed
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1 and ranks.world_rank(self.subject) is None:
            self.once("world", f"this is one of {dist.get_world_size()} processes, and each of them reads all samples: give the loader a DistributedSampler")

    @property
    def draws(self) -> bool:
        """Whether the order follows from a seed that is drawn from torch's default generator."""
        return self._drawn.sampler(self.subject) is not None

    def reseed(self, seed: int | None) -> None:
        """Takes a seed in place of the drawn one; None: of the one that is drawn next."""
        self._drawn.take(seed)

    @property
    def place(self) -> tuple[int, int]:
        return ranks.world_rank(self.subject) or (1, 0)

    @property
    def next_epoch(self) -> int:
        """That the next iteration will read."""
        holder = ranks.epoch_holder(self.subject)
        if self._asked is not None:
            return self._asked
        if holder is not None and (self.epoch < 0 or holder.epoch != self._seen):
            return int(holder.epoch)
        return self.epoch + 1

    def digest(self, epoch: int) -> str | None:
        """Of the epoch's global order; None if that can't be told. Right for the epoch that is being read and for later ones."""
        if self._noted is not None and self._noted[0] == epoch:
            return self._noted[1]
        try:
            with quiet() as guard:
                twin = clone(self.subject)
                self._put(twin, epoch)
                order = ranks.merge(twin)
                # If it drew from a global generator, the order can be told only at its beginning.
                return None if guard.drawn() else ranks.digest(order)
        except Exception as e:
            self.once("digest", f"the order of epoch {epoch} can't be told from a copy of the sampler: {e!r}")
            return None

    # An epoch.

    def iterate(self) -> Iterator[list[int]]:
        """The subject's batches, tagged. Like those of any sampler they are drawn when they are asked for."""
        subject = self.subject  # which stays as long as its batches are asked for
        generators = Generators(subject)
        self._states.iterated(generators)
        return self._epoch(subject, generators, self.looped)

    def go_on(self) -> None:
        """The training loop asks for its second batch of an epoch: it does more than look at one."""
        if self._publisher is not None:
            self._publisher.go_on()

    def _epoch(self, subject: Any, generators: Generators, looped: bool) -> Iterator[list[int]]:
        self._begin(generators)
        number, (_, rank) = self.epoch, self.place
        lent = self._drawn.begin(subject, number)
        expected = self._foresee(generators)
        batches, skip = self._rest(number)
        if batches is not None:
            expected[number] = batches
        real = batches if batches is not None else subject.batches() if hasattr(subject, "batches") else subject
        if self._publisher is not None:
            self._publisher.begin(expected, number, rank, looped)
        foreseen = expected.get(number)
        self.exact = None if foreseen is None else True
        track = bool(len(generators)) and ranks.epoch_holder(subject) is None
        count = 0
        for count, batch in enumerate(lend(lent, real), 1):
            if foreseen is not None and self.exact and (count > len(foreseen) or batch != foreseen[count - 1]):
                self._diverged(number, count - 1, batch, foreseen)
            if track:
                self._states.leave(generators)
            if count > skip:
                yield batch if self._publisher is None else self._publisher.batch(batch, (number, rank, count - 1))
        if track:
            self._states.leave(generators)
        if foreseen is not None and self.exact and count < len(foreseen):
            self._diverged(number, count, [], foreseen)
        self.complete = True
        if not looped:
            self.go_on()

    def _begin(self, generators: Generators) -> None:
        """Decides the epoch's number and sets the sampler's generators to its beginning."""
        holder = ranks.epoch_holder(self.subject)
        number = self.next_epoch
        if holder is not None:
            self._stuck = self.epoch >= 0 and self._asked is None and holder.epoch == self._seen
            if self._stuck and self.complete and getattr(holder, "shuffle", True):
                self.once("stuck", f"epoch never advanced: {type(holder).__name__}.epoch is still {holder.epoch}, so this epoch has the order of the last one; "
                           "call set_epoch(epoch) before each epoch")
            self._seen = holder.epoch
        elif len(generators):
            self._states.begin(generators, number)
        self._states.began(generators)
        self._asked, self.epoch, self.complete, self.skipped, self.before = None, number, False, 0, 0

    def _put(self, twin: Any, epoch: int) -> None:
        """Brings a copy to an epoch's beginning."""
        holder = ranks.epoch_holder(twin)
        generators = Generators(twin)
        if self.draws:
            self._drawn.put(twin, epoch)
        if holder is not None:
            begun = self.epoch >= 0 and self._seen is not None and self._asked is None
            holder.set_epoch(epoch if not begun else self._seen if self._stuck else self._seen + epoch - self.epoch)
        elif len(generators):
            self._states.put(generators, epoch, epoch == self.epoch)

    def _foresee(self, generators: Generators) -> dict[int, list[list[int]]]:
        """The batches of this epoch and of the next ones, as far as they follow from the sampler's own state."""
        foreseen: dict[int, list[list[int]]] = {}
        if self.route is None:
            dataset = dataset_of(self.subject)
            if dataset is not None:
                self._lead_to(dataset)
        if self._publisher is None:
            return foreseen
        try:
            with quiet() as guard:
                twin = clone(self.subject)
                own, holder = Generators(twin), ranks.epoch_holder(twin)
                at = holder.epoch if holder is not None else 0
                for ahead in range(1 + AHEAD):
                    if ahead and not self._publisher.expects(self.epoch + ahead):
                        break
                    if holder is not None:
                        holder.set_epoch(at if self._stuck else at + ahead)
                    if self.draws:
                        self._drawn.put(twin, self.epoch + ahead)
                    batches = list(bounded(twin))
                    if ahead and guard.drawn():
                        break
                    foreseen[self.epoch + ahead] = batches
                    if guard.drawn():
                        self._noted = self.epoch, self._merged_digest()
                        self.once("global", "the order depends on a global random generator, so that only the epoch that begins can be foreseen, not the next: "
                                   "give the sampler a generator of its own (or DataLoader a seed)", logging.INFO)
                        break
                    if holder is None and len(own):
                        self._states.foresaw(self.epoch + ahead + 1, own)
        except Exception as e:
            self.once("foresee", f"the order can't be foreseen, which costs speed: {type(self.subject).__name__}: {e!r}")
        return foreseen

    def _merged_digest(self) -> str:
        with quiet():
            return ranks.digest(ranks.merge(clone(self.subject)))

    def _rest(self, number: int) -> tuple[list[list[int]] | None, int]:
        """After a resume: the rest of the epoch's batches if they are others than the sampler's, else how many are done."""
        at, self._resume = self._resume, None
        if at is None or at.epoch != number:
            return None, 0
        now = self.digest(number)
        if at.digest is not None and now != at.digest:
            raise Error(f"resume in epoch {number}: its order is not the one that was saved (digest {now and now[:8]}, was {at.digest[:8]}): "
                        "another seed, sampler, dataset or persistent_workers, or another release of torch")
        (world, rank), size = self.place, getattr(self.subject, "batch_size", None)
        if at.before == 0 and (at.world, at.batch_size) == (world, size):
            self.skipped = at.consumed
            return None, at.consumed
        if size is None:
            raise Error("resume with another batch size or world size needs a batch sampler that has a batch_size")
        with quiet():
            twin = clone(self.subject)
            self._put(twin, number)
            order = ranks.merge(twin)
        self.before = min(at.before + at.consumed * at.batch_size * at.world, len(order))
        drop = any(getattr(s, "drop_last", False) for s in ranks.chain(self.subject) if hasattr(s, "num_replicas"))
        mine = ranks.deal(order[self.before :], world, rank, drop)
        return ranks.cut(mine, size, bool(getattr(self.subject, "drop_last", False))), 0

    def _diverged(self, epoch: int, number: int, batch: Any, foreseen: list[list[int]]) -> None:
        self.exact = False
        want = foreseen[number] if number < len(foreseen) else []
        got = list(batch) if hasattr(batch, "__iter__") else [batch]
        at = next((i for i, (a, b) in enumerate(itertools.zip_longest(got, want)) if a != b), 0)
        self.once("diverged", f"the order differs from what a copy of the sampler said, first in epoch {epoch} batch {number} position {at} "
                   f"({len(got)} samples, {len(want)} foreseen): the sampler draws from something that others draw from, too, or changes while it is read; this costs speed only")
