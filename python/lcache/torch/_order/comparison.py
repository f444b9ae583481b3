"""Compares the batches of an epoch, as they are drawn, with the predicted ones. The prediction may arrive after some batches were drawn."""

from __future__ import annotations

import itertools
from typing import Any

from .wrappers import Batches


class Comparison:
    """The comparison for one epoch. Batches are numbered from 1.

    Methods that compare return the place of the first difference. None: there is none, or it was already returned.
    """

    def __init__(self, predicted: Batches | None, awaited: bool) -> None:
        """awaited: predict() may be called later."""
        self.predicted = predicted
        self.exact: bool | None = None if predicted is None else True  # all batches were as predicted; None: nothing was predicted
        self.total: int | None = None if predicted is None else len(predicted)  # batches of the epoch; None: not yet known
        self._drawn: list[tuple[int, Any]] | None = [] if awaited and predicted is None else None  # kept while the prediction is awaited

    def predict(self, predicted: Batches) -> str | None:
        """Sets the prediction, and compares it with the batches drawn so far."""
        drawn, self._drawn = self._drawn or [], None
        self.predicted, self.exact, self.total = predicted, True, len(predicted)
        return next((where for where in (self.add(number, batch) for number, batch in drawn) if where is not None), None)

    def await_no_more(self) -> None:
        """Notes that predict() will not be called."""
        self._drawn = None

    def add(self, number: int, batch: Any) -> str | None:
        """Compares the next batch."""
        predicted = self.predicted
        if predicted is None:
            if self._drawn is not None:
                self._drawn.append((number, batch[:] if isinstance(batch, list) else batch))  # a loader may extend a batch in place
        elif self.exact and (number > len(predicted) or not _is_batch(batch, predicted[number - 1])):
            return self._differs(number - 1, batch, predicted)
        return None

    def end(self, count: int) -> str | None:
        """Ends the epoch, which had that number of batches."""
        self.total = count
        if self.predicted is not None and self.exact and count < len(self.predicted):
            return self._differs(count, [], self.predicted)
        return None

    def _differs(self, number: int, batch: Any, predicted: Batches) -> str:
        self.exact = False
        want = predicted[number] if number < len(predicted) else []
        got = list(batch) if hasattr(batch, "__iter__") else [batch]
        at = next((i for i, (a, b) in enumerate(itertools.zip_longest(got, want)) if a != b), 0)
        return f"batch {number} position {at} ({len(got)} samples, {len(want)} predicted)"


def _is_batch(batch: Any, predicted: list[int]) -> bool:
    """Whether a batch is the predicted one. A batch sampler may yield any container of indices."""
    return bool(batch == predicted) if isinstance(batch, list) or not hasattr(batch, "__iter__") else list(batch) == list(predicted)
