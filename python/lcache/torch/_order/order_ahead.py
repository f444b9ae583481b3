"""The future order of a batch sampler: predicted by copies, pushed to the server, and compared with the batches that the sampler then yields.

An OrderAhead belongs to one batch sampler, its subject. Every batch comes from the subject itself; copies only predict. The order of an epoch is a
function of the sampler, its seed and the epoch's number: before an epoch, the sampler's own generators are set to the states that they would have
if every earlier epoch had run to its end (generator_states.py). If the program has set them meanwhile, its states are used. A sampler without a
generator keeps the seed that RandomSampler draws for the first epoch (drawn_seed.py).
"""

from __future__ import annotations

import functools
import logging
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.distributed

from ...errors import Error
from ...job import Job
from . import ranks
from .comparison import Comparison
from .drawn_seed import DrawnSeed, with_generator
from .epoch_numbers import EpochNumbers
from .foreseen_orders import ForeseenOrders
from .generator_states import GeneratorStates
from .importance_sampler import served_sampler
from .known_samplers import KnownSampler, known_sampler
from .loader_job import LeftOut, LoaderJob
from .loop_names import loop_name, note_loader
from .push import Orders, Pusher
from .resume import Position
from .run_ahead import LogOnce, RunAhead
from .sampler_copy import Generators
from .stateful_batches import Begun, StatefulBatches, StatefulEpoch, is_stateful, runs_when_made
from .tagged_batch import Following, TaggedBatch
from .wrappers import Batches, Translation, dataset_of


class OrderAhead:
    # No part of an OrderAhead refers to it, and if its subject holds it, its reference to the subject is weak. So a dropped loader is freed at once,
    # without the garbage collector, and with it its ownership of the order.

    def __init__(self, subject: Any, held: bool = False) -> None:
        """held: the subject holds this object."""
        self._held = held
        self._subject: Callable[[], Any] = weakref.ref(subject) if held else lambda: subject
        self.once = LogOnce()
        self.translation: Translation | None = None
        self._numbers = EpochNumbers(self._subject)
        self.skipped = 0  # batches of the current epoch that were read before a resume
        self.before = 0  # samples of its global order that were read with another world size before a resume
        self._comparison: Comparison | None = None  # the current epoch's comparison with the prediction
        self.in_loop = False  # iterators made now belong to a training loop, which calls go_on()
        self._bound: tuple[Any, Any] | None = None  # the arguments of bind()
        self._resume: Position | None = None
        run = RunAhead(self._subject, self.once)
        self._states = GeneratorStates(self._subject, run)
        self._drawn = DrawnSeed(run)
        self._foreseen = ForeseenOrders(self._subject, self._numbers, self._states, self._drawn, run, self.once)
        self._loader_job = LoaderJob()
        self._pusher: Pusher | None = None
        self._workers = 0  # worker processes of the loader that iterates over the subject
        self._unread = False  # no batch of the current epoch was requested yet: another iterator begins the epoch again

    def __deepcopy__(self, memo: dict[int, Any]) -> OrderAhead:
        twin = memo.get(id(self.subject))
        return OrderAhead(twin, self._held and twin is not None)

    def __reduce__(self) -> Any:
        return OrderAhead, (self.subject, self._held)

    # For the batch sampler and its loader.

    @property
    def subject(self) -> Any:
        """The batch sampler; None if it is gone."""
        return self._subject()

    def bind(self, dataset: Any, generator: Any = None) -> None:
        """Sets the dataset that the batches are for, and the generator that the loader draws its base seed from."""
        self._bound = dataset, generator
        self._push_to(dataset)
        self._states.bind(generator)

    def within(self, loader: Any) -> None:
        """Sets the loader that iterates over the subject. With persistent workers it draws a base seed only before the first epoch."""
        self._states.persistent = bool(loader.persistent_workers) and loader.num_workers > 0
        self._workers = loader.num_workers

    def dealt(self, subject: Any) -> OrderAhead:
        """The OrderAhead of a sampler that deals this subject's batches to ranks. It begins at the same epoch."""
        twin = OrderAhead(subject)
        twin._loader_job = self._loader_job
        if self._bound is not None:
            twin.bind(*self._bound)
        twin._states.persistent = self._states.persistent
        twin._numbers.named, twin._numbers.current = self._numbers.named, self._numbers.current
        twin._resume, twin._drawn.seed = self._resume, self._drawn.seed
        return twin

    def _push_to(self, dataset: Any) -> None:
        self.translation = Translation(dataset)
        note_loader(self._loader_job, self.translation)
        served = served_sampler(self.subject)
        if served is not None:
            self._pusher = None
            served.require_dataset(self.translation.leaves, self.translation.direct or self.translation.guessed)
            return
        self._pusher = Pusher(self.translation, self.once, self._loader_job) if self.translation.leaves else None

    @property
    def jobs(self) -> list[Job]:
        """The job of the subject's loader at the server of each lcache dataset."""
        served = served_sampler(self.subject)
        return ([] if served is None else [served.job]) if self._pusher is None else self._pusher.jobs

    @property
    def left_out(self) -> LeftOut | None:
        """The samples that bad= leaves out of the subject's datasets. The digests of several datasets are joined. None: there are none."""
        found = [leaf.lcache_left_out for leaf in (self.translation.leaves if self.translation is not None else [])]
        count = sum(one.samples for one in found)
        return LeftOut(count, "+".join(one.digest for one in found)) if count else None

    @property
    def token(self) -> str | None:
        """The token of the job of the subject's loader. None: the job is the dataset's, or the loader has not begun."""
        return self._loader_job.token

    @property
    def name(self) -> str:
        """The name of the subject's loader in messages: its datasets, and its rank if there are several."""
        world, rank = self.world_rank
        return " · ".join(filter(None, (loop_name(self._loader_job), f"rank {rank}" if world > 1 else "")))

    @property
    def batches(self) -> int | None:
        """The number of batches that the training loop gets in the current epoch. None: unknown."""
        compared, subject = self._comparison, self.subject
        if compared is None or self._foreseen.is_awaited:
            return None
        if compared.exact:
            return None if compared.total is None else compared.total - self.skipped
        if getattr(type(subject), "__len__", None) is not torch.utils.data.BatchSampler.__len__ or self.before:
            return None
        try:
            return len(subject) - self.skipped
        except TypeError:  # its sampler has no length
            return None

    @property
    def draws_seed(self) -> bool:
        """Whether the order is determined by a seed that is drawn from torch's default generator."""
        return self._drawn.sampler(self.subject) is not None

    def seed(self) -> int | None:
        """The seed that determines the order. None: the order has no seed, or the seed is not yet drawn."""
        if self.draws_seed:
            return self._drawn.seed
        for s in ranks.chain(self.subject):
            for name in ("seed", "initial_seed"):
                if isinstance(getattr(s, name, None), int):
                    return int(getattr(s, name))
        return Generators(self.subject).seed()

    def take_seed(self, seed: int | None) -> None:
        """Takes the seed of a saved state. A seed that torch draws is replaced; None: the next drawn one is kept. Raises Error for another seed."""
        if self.draws_seed:
            self._drawn.take(seed)
        elif seed != self.seed():
            raise Error(f"load the loader's state: it has seed {seed}, and this loader has seed {self.seed()}; give the loader the same")

    @property
    def world_rank(self) -> tuple[int, int]:
        """(world size, rank) of the subject."""
        return ranks.world_rank(self.subject) or (1, 0)

    def check_world(self) -> None:
        """Logs a warning if this is one of several ranks, and its loader reads all samples."""
        dist = torch.distributed
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1 and ranks.world_rank(self.subject) is None:
            self.once("world", f"this is one of {dist.get_world_size()} processes, and each of them reads all samples: give the loader a DistributedSampler")

    @property
    def epoch(self) -> int:
        """The current epoch, or the last one; -1 before the first."""
        return self._numbers.current

    @property
    def exact(self) -> bool | None:
        """Whether all batches of the epoch were as predicted. None: the epoch was not predicted."""
        return None if self._comparison is None else self._comparison.exact

    @property
    def complete(self) -> bool:
        """Whether the epoch was read to its end."""
        return self._numbers.complete

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration, here and in the sampler that stores its number."""
        self._numbers.set(epoch)

    def resume(self, at: Position) -> None:
        """The next iteration continues at a position."""
        self._resume = at
        self.set_epoch(at.epoch)

    def position(self, received: int) -> Position:
        """The position of a training loop that has received that number of batches of the current epoch. 0: the beginning of the next epoch."""
        world, _ = self.world_rank
        size = getattr(self.subject, "batch_size", None)
        if received and self._numbers.named is None:
            return Position(self.epoch, self.skipped + received, world, size, self.before, self.digest(self.epoch))
        epoch = self._numbers.next
        if self._resume is not None and self._resume.epoch == epoch:
            return self._resume
        return Position(epoch, 0, world, size, 0, self.digest(epoch))

    def digest(self, epoch: int) -> str | None:
        """The digest of an epoch's global order, for the current epoch and later ones. None if it can't be predicted."""
        return self._foreseen.digest(epoch)

    def served_digest(self) -> str | None:
        """The digest that the first server's status has for the current epoch. None if it is unknown here, for example because there are other ranks."""
        if self._pusher is None or self.world_rank[0] > 1 or self.skipped or self.before:
            return None
        return self._pusher.digest(self.epoch)

    # An epoch.

    def iterate(self) -> Iterator[Any]:
        """Yields an epoch of the subject's batches, tagged. Each batch is drawn when it is requested, as in torch."""
        subject = self.subject  # a strong reference as long as batches are requested
        generators = Generators(subject)
        self._states.note_iterator(generators)
        if hasattr(subject, "batches") or not runs_when_made(subject):
            return self._read(subject, generators, self.in_loop)
        begin = functools.partial(self._begin_at_once, subject, generators, self.in_loop)
        begun = begin(None, None)
        return StatefulBatches(begin, begun) if is_stateful(begun.inner) else begun.batches

    def go_on(self) -> None:
        """Notes that the training loop requests its second batch of an epoch, so it does more than look at one batch."""
        if self._pusher is not None:
            self._pusher.go_on()
            self._look_further()

    def note_left(self, received: int) -> None:
        """Notes that the training loop left an epoch after that number of batches, without requesting one more."""
        compared = self._comparison
        if compared is not None and compared.total == self.skipped + received and self._tracks(Generators(self.subject)):
            self._log_counted()

    def _log_counted(self) -> None:
        self.once(
            "counted",
            "this loop stops at an epoch's last batch without requesting one more, or repeats its batch sampler. With torch the later epochs would then "
            "depend on the number of workers. With lcache they have the order that torch has after whole epochs",
            logging.INFO,
        )

    def _read(self, subject: Any, generators: Generators, in_loop: bool) -> Iterator[Any]:
        self._foreseen.settle(stop=True)
        self._begin(generators)
        number, (_, rank) = self.epoch, self.world_rank
        lent = self._drawn.begin(subject, number)
        known = known_sampler(subject)
        orders = self._predict(known)
        batches, skip = self._after_resume(number)
        if batches is not None:
            orders[number] = batches
        real, first = self._real(subject, known, lent, batches, skip)
        if self._pusher is not None:
            self._pusher.begin(orders, number, rank, in_loop, self._foreseen.is_awaited)
        yield from self._follow((number, rank), orders.get(number), generators, in_loop, real, first, skip)

    def _begin_at_once(
        self, subject: Any, generators: Generators, in_loop: bool, state: Any, added: dict[str, Any] | None
    ) -> Begun:
        """Begins an epoch of a subject that may draw when its iterator is made. It draws only what the subject's own iterator draws now.

        state: the epoch continues from it. added: lcache's additions to the state.
        """
        self._foreseen.settle(stop=True)
        if self._unread and self._numbers.named is None:
            self._numbers.named = self.epoch
        epoch = StatefulEpoch(subject, self._drawn, state, self.left_out)
        if state is not None:
            self._resume = None
            restored = epoch.restore(added)
            if restored is not None:
                self.set_epoch(restored)
        self._begin(generators)
        self._unread = state is None
        number, (_, rank) = self.epoch, self.world_rank
        batches, skip = self._after_resume(number)
        orders = {} if epoch.restores_seed else self._predict(None, state)
        inner = epoch.begin(number)
        if epoch.restores_seed and self._drawn.seed is not None:
            orders = self._predict(None, state)
        if self._tracks(generators):
            self._states.note_drawn(generators)
        if state is not None:
            self._states.note_loaded(generators)
        if batches is not None:
            orders[number] = batches
        if self._pusher is not None:
            self._pusher.begin(orders, number, rank, in_loop, self._foreseen.is_awaited)
        real = epoch.batches(inner) if batches is None else batches
        return Begun(inner, self._follow((number, rank), orders.get(number), generators, in_loop, real, 0, skip), epoch.added)

    def _tracks(self, generators: Generators) -> bool:
        """Whether the beginning of an epoch is given by the states of the subject's own generators."""
        return bool(len(generators)) and ranks.epoch_holder(self.subject) is None

    def _follow(
        self, at: tuple[int, int], predicted: Batches | None, generators: Generators, in_loop: bool, real: Iterable[Any], first: int, skip: int
    ) -> Iterator[Any]:
        """Yields the batches of an epoch and rank from number `skip` on, as the loader gets them. The first batch in real has number `first`."""
        number, rank = at
        self._unread = False
        compared = self._comparison = Comparison(predicted, self._foreseen.is_awaited)
        track = self._tracks(generators)
        count, sent = first, list[Job]()
        is_early = in_loop and not self._workers
        try:
            for count, batch in enumerate(real, first + 1):
                if track:
                    self._states.note_drawn(generators)
                self._note_difference(number, compared.add(count, batch))
                if self._foreseen.is_awaited:
                    self._take_arrived(number, compared, first=count == first + 1)
                if count > skip:
                    tagged = batch if self._pusher is None else self._tagged(batch, (number, rank, count - 1))
                    predicted = compared.predicted
                    if is_early and compared.exact and predicted is not None and count < len(predicted) and isinstance(tagged, TaggedBatch):
                        tagged.following = Following((number, rank, count), functools.partial(predicted.__getitem__, count), sent)
                    yield tagged
        finally:
            for job in sent:
                job.drop_early()  # the loop left the epoch
        if track:
            self._states.note_drawn(generators)
        if self._foreseen.is_awaited:
            self._take_arrived(number, compared, last=True)
        self._note_difference(number, compared.end(count))
        self._numbers.complete = True
        if not in_loop:
            self.go_on()
        self._foreseen.settle()  # the server needs the next epoch's order now

    def _take_arrived(self, number: int, compared: Comparison, first: bool = False, last: bool = False) -> None:
        """Uses the orders that a child predicted meanwhile. Waits a while at the epoch's first batch and after its last."""
        orders = self._foreseen.arrived(first, last)
        if compared.predicted is not None:
            orders.pop(number, None)  # after a resume with another world size the rest of the epoch is dealt differently
        elif number in orders:
            self._note_difference(number, compared.predict(orders[number]))
        if compared.exact is False:
            orders = {}  # a wrong order costs more than none
        if self._pusher is not None:
            self._pusher.add(orders)
        if not self._foreseen.is_awaited:
            compared.await_no_more()
            if self._pusher is not None:
                self._pusher.await_no_more()

    def _real(self, subject: Any, known: KnownSampler | None, lent: Any, resumed: Any, skip: int) -> tuple[Iterable[Any], int]:
        """(an iterable of the epoch's batches, the number of the first one). lent is the sampler with its generator for this epoch."""
        if resumed is not None:
            return resumed, 0
        computed = self._foreseen.batches(known, skip)
        if computed is not None:
            return computed, skip
        return with_generator(lent, subject.batches() if hasattr(subject, "batches") else subject), 0

    def _tagged(self, batch: Any, at: tuple[int, int, int]) -> Any:
        assert self._pusher is not None
        tagged = self._pusher.tag(batch, at)
        self._look_further()
        return tagged

    def _look_further(self) -> None:
        """Starts to compute and push the next epochs, once this epoch's order is pushed and the training loop has requested a second batch."""
        if self._pusher is not None and self._foreseen.can_go_on:
            push = self._pusher.later()
            if push is not None:
                self._foreseen.go_on(self._pusher.has_epoch, push)

    def _begin(self, generators: Generators) -> None:
        """Decides the epoch's number and sets the sampler's generators to its beginning."""
        number = self._numbers.begin(self.once)
        if ranks.epoch_holder(self.subject) is None and len(generators):
            self._states.begin(generators, number)
            if self._states.repeated:
                self._log_counted()
        self._states.note_begun(generators)
        self.skipped, self.before = 0, 0

    def _predict(self, known: KnownSampler | None, state: Any = None) -> Orders:
        """The batches of this epoch and the next ones, as far as the sampler's own state determines them. state: that of an iterator, which continues."""
        if self.translation is None:
            dataset = dataset_of(self.subject)
            if dataset is not None:
                self._push_to(dataset)
        return self._foreseen.nothing() if self._pusher is None else self._foreseen.predict(known, self._pusher.has_epoch, state)

    def _after_resume(self, number: int) -> tuple[Batches | None, int]:
        """(batches, skip) of an epoch that a resume begins. batches replace the sampler's own. None: skip the first `skip` of the sampler's own."""
        at, self._resume = self._resume, None
        if at is None or at.epoch != number:
            return None, 0
        now = self.digest(number)
        if at.digest is not None and now != at.digest:
            raise Error(
                f"resume in epoch {number}: its order differs from the saved one (digest {now and now[:8]}, was {at.digest[:8]}): "
                "use the same seed, sampler, dataset, persistent_workers and release of torch"
            )
        (world, rank), size = self.world_rank, getattr(self.subject, "batch_size", None)
        if at.before == 0 and (at.world, at.batch_size) == (world, size):
            self.skipped = at.consumed
            return None, at.consumed
        if size is None:
            raise Error("resume with another batch size or world size: the batch sampler needs an attribute batch_size")
        order = self._foreseen.global_order(number)
        drops_round = any(getattr(s, "drop_last", False) for s in ranks.chain(self.subject) if hasattr(s, "num_replicas"))
        drops_batch = bool(getattr(self.subject, "drop_last", False))
        batches, self.before = at.remaining(order, world, rank, size, (drops_round, drops_batch))
        served = served_sampler(self.subject)
        if served is not None:
            served.set_epoch(number + 1)  # the program does not iterate over it in this epoch
        return batches, 0

    def _note_difference(self, epoch: int, where: str | None) -> None:
        if where is None:
            return
        if self._foreseen.note_wrong(epoch):
            self.once("diverged", f"the order differs from the one that a forked process predicted, first in epoch {epoch} {where}", logging.INFO)
            return
        self.once(
            "diverged",
            f"the order differs from the one that a copy of the sampler predicted, first in epoch {epoch} {where}: "
            "the sampler shares a random generator with other code, or changes while it is read; this costs speed only",
        )
