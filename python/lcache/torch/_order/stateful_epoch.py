"""An epoch of a batch sampler whose iterators have a state, from its beginning or from where a state was taken.

The order may follow from a seed that torch draws. Then lcache adds the seed and the epoch's number to the state, and a resume takes them from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...errors import Error
from .drawn_seed import DrawnSeed, Lending


class StatefulEpoch:
    """One epoch: restore() first, where it goes on from a state, then begin()."""

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
