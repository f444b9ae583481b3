"""Batch samplers whose iterators have a state of their own, as those of torchdata's StatefulDataLoader.

torchdata restores such an iterator at once, before the dataset's state, and any other iterator runs ahead at its first batch only. So an order ahead
yields the batches of such a sampler from an iterator with a state, too: otherwise they are drawn at another moment.

The order may follow from a seed that torch draws. Then lcache adds the seed and the epoch's number to the state, and a resume takes them from there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ...errors import Error
from .drawn_seed import DrawnSeed, Lending

_OURS = "lcache"  # the key in a state for what lcache adds


class Begun(NamedTuple):
    """An epoch that has begun."""

    inner: Any  # the batch sampler's own iterator, which has the state
    batches: Iterator[Any]
    added: Callable[[], dict[str, Any] | None]  # inputs of the order in addition to the inner state


class StatefulBatches:
    """An epoch's batches."""

    def __init__(self, begin: Callable[[Any, dict[str, Any] | None], Begun], begun: Begun) -> None:
        """begun is what begin(None, None) returned. begin(state, added) begins the epoch where the state was taken."""
        self._begin, self._begun = begin, begun

    def __iter__(self) -> StatefulBatches:
        return self

    def __next__(self) -> Any:
        return next(self._begun.batches)

    def state_dict(self) -> Any:
        """The state of the batch sampler's own iterator. Where its order follows from a drawn seed, the state has that, too."""
        state, added = self._begun.inner.state_dict(), self._begun.added()
        return state if added is None or not isinstance(state, dict) else {**state, _OURS: added}

    def load_state_dict(self, state: Any) -> None:
        """Goes on where the state was taken."""
        added = None
        if isinstance(state, dict) and _OURS in state:
            added, state = state[_OURS], {key: value for key, value in state.items() if key != _OURS}
        self._begun = self._begin(state, added)


class StatefulEpoch:
    """One epoch, from its beginning or from where a state was taken: restore() first, where it goes on from a state, then begin()."""

    def __init__(self, subject: Any, drawn: DrawnSeed, state: Any) -> None:
        """state is that of the batch sampler's own iterator. None: the epoch begins."""
        self._subject, self._drawn, self._state = subject, drawn, state
        self._sampler = drawn.sampler(subject)  # None: the order follows from no drawn seed
        self._number = -1
        self._lending: Lending | None = None

    @property
    def restores_seed(self) -> bool:
        """Whether the epoch goes on in an order that follows from a drawn seed. That is known once it has begun."""
        return self._state is not None and self._sampler is not None

    def restore(self, added: dict[str, Any] | None) -> int | None:
        """Takes the seed that was added to the state. Returns the epoch's number, if that was added, too. None: the state is not lcache's."""
        if not self.restores_seed:
            return None
        if added is None:
            self._drawn.take(None)  # the next draw counts
            return None
        seed, epoch = added.get("seed"), added.get("epoch")
        if not isinstance(epoch, int) or epoch < 0:
            raise Error(f"the loader's state has epoch {epoch!r:.40}")
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
        """What lcache adds to the iterator's state."""
        return None if self._sampler is None else {"seed": self._drawn.seed, "epoch": self._number}


def runs_when_made(batches: Any) -> bool:
    """Whether a batch sampler may run code of its own when an iterator is made, and not only when a batch is asked for."""
    return not inspect.isgeneratorfunction(getattr(type(batches), "__iter__", None))


def is_stateful(value: Any) -> bool:
    """Whether torchdata takes an object's state."""
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")
