"""Runs copies of one batch sampler in advance: of a pure one in this process, of any other one in forked children, until predictions fail too often."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

from .forked_child import Child, ChildError, answer_of
from .outside import reached_outside
from .pure_samplers import impure_part
from .sampler_copy import copy_sampler, preserved_random_states, silence

_log = logging.getLogger("lcache")

_TRIES = 2  # epochs whose prediction may fail or be wrong


class LogOnce:
    """Logs one message for each key, however often its cause recurs. One object belongs to one loader."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def __call__(self, key: str, message: str, level: int = logging.WARNING) -> None:
        if key not in self._logged:
            self._logged.add(key)
            _log.log(level, message)


class RunAhead:
    """Belongs to one batch sampler, the subject."""

    def __init__(self, subject: Callable[[], Any], once: LogOnce) -> None:
        self._subject, self._once = subject, once
        self.stopped = False  # predictions have ended
        self.this_epoch_only = False  # predictions of later epochs have ended
        self._failed = self._wrong = self._misjudged = 0  # epochs that were not predicted; predicted wrongly; predicted wrongly an epoch before
        self._unforeseen = 0  # epochs after which no other was predicted
        self._unanswered = 0  # calls of answer() that failed

    @property
    def is_copied(self) -> bool:
        """Whether a copy may run in this process: the sampler is pure and has an end."""
        return impure_part(self._subject()) is None and has_length(self._subject())

    def child(self, function: Callable[[Any], Iterator[Any]]) -> Child:
        """A child that runs a generator function on its copy of the sampler. Raises ChildError if no child may run it."""
        subject = self._subject()
        _require_inside(subject)
        return Child(lambda: function(silence(subject)))

    def answer(self, function: Callable[[Any], Any]) -> Any:
        """The result of a function for a copy of the sampler. Raises ChildError if a child would have to run it and can't."""
        subject = self._subject()
        if self.is_copied:
            with preserved_random_states():
                return function(copy_sampler(subject))
        if self.stopped or self._unanswered >= _TRIES:
            raise ChildError("predictions of the sampler have ended")
        try:
            _require_inside(subject)
            return answer_of(lambda: function(silence(subject)))
        except ChildError:
            self._unanswered += 1
            raise

    def note_failure(self, why: ChildError, later: bool = False) -> None:
        """Notes that an epoch could not be predicted when it began. later: only epochs after it could not."""
        if later:
            self._unforeseen += 1
            self.this_epoch_only = self.this_epoch_only or self._unforeseen >= _TRIES
            self._once("later", f"the orders of later epochs of {self._name} are not known in advance: {why.args[0]}", logging.INFO)
            return
        self._failed += 1
        self.stopped = self.stopped or why.final or self._failed >= _TRIES
        text = f"the order of {self._name} is not known in advance: {why.args[0]}"
        if self.stopped:
            self._once("ahead", f"{text}. {_COSTS} {_PURE}")
        else:
            self._once("predict", text, logging.INFO)

    def note_wrong(self) -> None:
        """Notes that an epoch did not have the order that was predicted when it began."""
        self._wrong += 1
        if self._wrong >= _TRIES:
            self.stopped = True
            text = f"{self._name} yielded another order than its copy in a forked process, in {_TRIES} epochs, so its order is not predicted any longer"
            self._once("ahead", f"{text}. {_COSTS} {_SEED}")

    def note_misjudged(self) -> None:
        """Notes that an epoch does not have the order that was predicted an epoch before."""
        self._misjudged += 1
        if self._misjudged >= _TRIES and not self.this_epoch_only:
            self.this_epoch_only = True
            self._once(
                "ahead",
                f"the order of {self._name} changed after it was predicted, in {_TRIES} epochs, so from now on only the current epoch is predicted. The "
                f"cache is not laid out for such orders, and reads at random, which costs speed. {_SEED}",
            )

    @property
    def _name(self) -> str:
        part = impure_part(self._subject())
        return type(self._subject() if part is None else part).__name__


_COSTS = "The cache reads its samples at random and not in advance, which costs speed."
_PURE = "If a copy of the sampler yields the same order and has no effect outside itself, set lcache_pure = True in its class"
_SEED = "An order that is determined by a seed and the epoch's number (set_epoch) is known in advance"


def _require_inside(sampler: Any) -> None:
    """Raises ChildError if a sampler uses something that a child must not use."""
    found = reached_outside(sampler)
    if found is not None:
        raise ChildError(f"it reaches {found}, which no second process may use", final=True)


def has_length(batches: Any) -> bool:
    """Whether a batch sampler has a length."""
    try:
        len(batches)
    except (TypeError, NotImplementedError):
        return False
    return True
