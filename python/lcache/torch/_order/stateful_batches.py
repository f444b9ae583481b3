"""Batch samplers whose iterators have their own state, as those of torchdata's StatefulDataLoader.

torchdata restores such an iterator at once, before the dataset's state. It advances any other iterator only at its first batch. So lcache's iterator over
such a sampler also has a state: otherwise batches would be drawn at another moment.

If the order is determined by a seed that torch draws, lcache adds the seed and the epoch's number to the state, and a resume reads them from there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ...errors import Error
from .drawn_seed import DrawnSeed, Lending
from .loader_job import LeftOut
from .resume import require_left_out

_OURS = "lcache"  # the key of lcache's additions to a state


class Begun(NamedTuple):
    """An epoch that has begun."""

    inner: Any  # the batch sampler's own iterator, which has the state
    batches: Iterator[Any]
    added: Callable[[], dict[str, Any] | None]  # inputs of the order in addition to the inner state


class StatefulBatches:
    """An epoch's batches."""

    def __init__(self, begin: Callable[[Any, dict[str, Any] | None], Begun], begun: Begun) -> None:
        """begun is what begin(None, None) returned. begin(state, added) begins the epoch at the position of the state."""
        self._begin, self._begun = begin, begun

    def __iter__(self) -> StatefulBatches:
        return self

    def __next__(self) -> Any:
        return next(self._begun.batches)

    def state_dict(self) -> Any:
        """The state of the batch sampler's own iterator. If a drawn seed determines the order, the state also has the seed."""
        state, added = self._begun.inner.state_dict(), self._begun.added()
        return state if added is None or not isinstance(state, dict) else {**state, _OURS: added}

    def load_state_dict(self, state: Any) -> None:
        """Continues at the position of the state."""
        added = None
        if isinstance(state, dict) and _OURS in state:
            added, state = state[_OURS], {key: value for key, value in state.items() if key != _OURS}
        self._begun = self._begin(state, added)


class StatefulEpoch:
    """One epoch, from its beginning or from the position of a state. To continue from a state, call restore() before begin()."""

    def __init__(self, subject: Any, drawn: DrawnSeed, state: Any, left_out: LeftOut | None = None) -> None:
        """state is that of the batch sampler's own iterator. None: the epoch begins. left_out are the datasets' bad samples."""
        self._subject, self._drawn, self._state, self._left_out = subject, drawn, state, left_out
        self._sampler = drawn.sampler(subject)  # None: no drawn seed determines the order
        self._number = -1
        self._lending: Lending | None = None

    @property
    def restores_seed(self) -> bool:
        """Whether the epoch continues an order that a drawn seed determines. Known once the epoch has begun."""
        return self._state is not None and self._sampler is not None

    def restore(self, added: dict[str, Any] | None) -> int | None:
        """Reads what was added to the state. Returns the epoch's number if it was added. Raises Error if the state has another list of bad samples."""
        require_left_out((added or {}).get("bad"), self._left_out)
        if not self.restores_seed:
            return None
        if added is None:
            self._drawn.take(None)  # the next drawn seed is kept
            return None
        seed, epoch = added.get("seed"), added.get("epoch")
        if not isinstance(epoch, int) or epoch < 0:
            raise Error(f"load the loader's state: its epoch {epoch!r:.40} is not an epoch's number; the state is damaged")
        self._drawn.take(seed)
        return epoch

    def begin(self, number: int) -> Any:
        """The batch sampler's own iterator for the epoch with that number."""
        self._number = number
        self._lending = Lending(self._drawn, self._sampler, number)
        with self._lending.lent():
            inner = iter(self._subject)
            if self._state is not None:
                inner.load_state_dict(self._state)
        return inner

    def batches(self, inner: Any) -> Iterator[Any]:
        """The batches of that iterator."""
        assert self._lending is not None
        return self._lending.batches(inner)

    def added(self) -> dict[str, Any] | None:
        """lcache's additions to the iterator's state."""
        seed = {} if self._sampler is None else {"seed": self._drawn.seed, "epoch": self._number}
        bad = {} if self._left_out is None else {"bad": self._left_out.digest}
        return {**seed, **bad} or None


def runs_when_made(batches: Any) -> bool:
    """Whether a batch sampler may run code when an iterator is made, and not only when a batch is requested."""
    return not inspect.isgeneratorfunction(getattr(type(batches), "__iter__", None))


def is_stateful(value: Any) -> bool:
    """Whether torchdata saves an object's state."""
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")
