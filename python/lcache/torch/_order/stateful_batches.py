"""Batch samplers whose iterators have a state of their own, as those of torchdata's StatefulDataLoader.

torchdata restores such an iterator at once, before the dataset's state, and any other iterator runs ahead at its first batch only. So an order ahead
yields the batches of such a sampler from an iterator with a state, too: otherwise they are drawn at another moment.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

_OURS = "lcache"  # the key in a state for what lcache adds


class Begun(NamedTuple):
    """An epoch that has begun."""

    inner: Any  # the batch sampler's own iterator, which has the state
    batches: Iterator[Any]
    added: Callable[[], dict[str, Any] | None]  # what the order follows from beside the inner state


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


def runs_when_made(batches: Any) -> bool:
    """Whether a batch sampler may run code of its own when an iterator is made, and not only when a batch is asked for."""
    return not inspect.isgeneratorfunction(getattr(type(batches), "__iter__", None))


def is_stateful(value: Any) -> bool:
    """Whether torchdata takes an object's state."""
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")
