"""Neighbours of samples in embedding space, which the method spider observes instead of losses. Embeddings never leave the training process.

A Bank keeps the newest embedding of each sample that this process saw. For each sample of a batch it counts the samples within a radius, those of the
same class and those of other classes. The counts are exact: one matrix product compares the batch with the whole bank. It needs numpy.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from .arrays import numpy_module
from .errors import ArgumentError

MOST = 50_000  # samples that a batch is compared with, unless the program allows more
_RESERVOIR = 1024  # samples in an estimate of the radius
_PIECE = 1 << 22  # distances computed at once


class Options(NamedTuple):
    """Two samples are neighbours if exp(-lam * distance) > alpha. Without lam and alpha the radius is the 25th percentile of distances within a class."""

    k: int = 500  # at most that many neighbours count, the nearest ones
    lam: float | None = None
    alpha: float | None = None
    normalise: bool = True  # scale embeddings to length 1

    @property
    def radius(self) -> float | None:
        """The distance below which samples are neighbours; None: it is estimated from the embeddings. Raises ArgumentError for impossible parameters."""
        if self.lam is None and self.alpha is None:
            return None
        if self.lam is None or self.alpha is None:
            raise ArgumentError("importance: lam and alpha together give the radius, -ln(alpha)/lam: give both or neither")
        if not (self.lam > 0 and 0 < self.alpha < 1):
            raise ArgumentError(f"importance: lam is {self.lam} and alpha is {self.alpha}: give a lam above 0, and an alpha between 0 and 1")
        return -math.log(self.alpha) / self.lam


class Counted(NamedTuple):
    """The number of neighbours of each sample of a batch. node is the sample with the most neighbours of its own class; near lists them, nearest first."""

    indices: array[int]
    same: array[int]
    other: array[int]
    node: int | None  # None: no sample has a neighbour of its class
    near: array[int]


def _ragged(embeddings: Any) -> bool:
    """Whether rows have different lengths."""
    try:
        return len({len(row) for row in embeddings}) > 1
    except TypeError:
        return False


class Refused(ArgumentError):
    """Embeddings that are refused. The status counts the reasons: "shape" for a whole batch, "dimension" and "notfinite" for samples."""

    def __init__(self, reason: str, count: int, why: str) -> None:
        super().__init__(why)
        self.reason, self.count = reason, count


class Bank:
    """The newest embeddings that one process saw, as rows of an array of float32. lcache.torch.Neighbours keeps them on a torch device."""

    def __init__(self, labels: Sequence[int], options: Options) -> None:
        """labels has a label for each sample of the dataset. Raises Error without numpy."""
        self.np = numpy_module("importance: spider needs")
        self.labels = self.np.asarray(labels, dtype="i4")
        self.options, self.radius = options, options.radius
        self.refused = 0  # rows with a value that is not finite
        self.width = 0  # values in a row
        self.changes = 0  # of the width: earlier counts belong to another network
        self.off = False  # the width changed twice in an epoch: the program mixes networks
        self._changed = -1  # the epoch in which the width changed
        self._known = self.np.zeros(len(labels), dtype=bool)
        self._estimated = (-1, 0)  # the epoch in which the radius was estimated, and from how many samples

    def observe(self, indices: Sequence[int], embeddings: Any, epoch: int) -> Counted:
        """Stores the embeddings of a batch, and counts neighbours. If a sample is in it twice, the last embedding counts. Raises Refused for wrong shapes."""
        np = self.np
        try:
            index, known, rows = self._taken(indices, embeddings, epoch)
        except Refused:
            self.exchange(None, None)  # the other ranks wait for this one's rows
            raise
        self.put(known, rows)
        self._known[known] = True
        self.exchange(known, rows)
        self._estimate(epoch)
        found = dict(zip(known.tolist(), self._found(known)))
        nobody = np.zeros(0, dtype="i8")
        own, every = [], []
        for i in index.tolist():
            near = found.get(i, nobody)
            every.append(len(near))
            own.append(near[self.labels[near] == self.labels[i]] if len(near) else near)
        same = array("H", map(len, own))
        best = max(range(len(own)), key=same.__getitem__, default=None)
        node = None if best is None or not same[best] else best
        return Counted(
            array("I", index.tolist()), same, array("H", (n - s for n, s in zip(every, same))),
            None if node is None else int(index[node]), array("I", () if node is None else own[node].tolist()),
        )  # fmt: skip

    def _taken(self, indices: Sequence[int], embeddings: Any, epoch: int) -> tuple[Any, Any, Any]:
        """(samples of the batch with a valid embedding, the same without samples outside the dataset, the rows of the latter)."""
        np = self.np
        if self.off:
            raise Refused("dimension", len(indices), "embeddings have changed their length too often in this run: observe the embeddings of one network")
        try:
            rows = self.rows_of(embeddings)
        except ArgumentError as e:
            raise Refused("dimension" if _ragged(embeddings) else "shape", len(indices) if _ragged(embeddings) else 1, str(e)) from None
        if len(rows.shape) != 2 or rows.shape[0] != len(indices) or not rows.shape[1]:
            raise Refused("shape", 1, f"observe {len(indices)} samples with embeddings of shape {tuple(rows.shape)}: give one row for each sample")
        self._require_width(int(rows.shape[1]), len(indices), epoch)
        fine = self.are_finite(rows)
        self.refused += len(fine) - int(fine.sum())
        places = {int(i): place for place, i in enumerate(indices) if fine[place]}
        index, column = (np.fromiter(numbers, dtype="i8", count=len(places)) for numbers in (places.keys(), places.values()))
        of_dataset = index < len(self.labels)
        return index, index[of_dataset], self._scaled(rows[column[of_dataset]])

    def _require_width(self, width: int, samples: int, epoch: int) -> None:
        """Drops all rows if the width has changed, because they belong to another network. After a second change in an epoch it always raises Refused."""
        if width == self.width:
            return
        self.changes += self.width > 0
        if self.width and self._changed == epoch:
            self.off = True
            why = f"the length of embeddings has changed twice in epoch {epoch}: later embeddings are ignored; observe the embeddings of one network"
            raise Refused("dimension", samples, why)
        self._changed = epoch if self.width else -1
        self.width = width
        self._known[:] = False
        self.clear()

    def _scaled(self, rows: Any) -> Any:
        if not self.options.normalise:
            return rows
        length = (rows * rows).sum(1, keepdims=True) ** 0.5
        return rows / (length + (length == 0))

    def _estimate(self, epoch: int) -> None:
        """Estimates the radius once in each epoch, and more often while few samples are known."""
        np, (last, few) = self.np, self._estimated
        seen = np.flatnonzero(self._known)
        if self.options.radius is not None or not len(seen) or (epoch == last and (few >= _RESERVOIR or len(seen) < 2 * few)):
            return
        self._estimated = epoch, len(seen)
        chosen = np.random.default_rng(epoch).permutation(seen)[:_RESERVOIR]
        labels = self.labels[chosen]
        alike = np.triu(labels[:, None] == labels[None, :], 1)
        self.radius = float(np.percentile(self.between(chosen)[alike], 25)) ** 0.5 if alike.any() else None

    def _found(self, index: Any) -> list[Any]:
        """The neighbours of samples, nearest first. Equal distances are sorted by index."""
        np, found, size = self.np, [], max(1, _PIECE // max(len(self.labels), 1))
        if self.radius is None:
            return [np.zeros(0, dtype="i8") for _ in index]
        for at in range(0, len(index), size):
            piece = index[at : at + size]
            places, others, far = self.within(piece, self.radius**2)
            others, far, places = (x[others != piece[places]] for x in (others, far, places))
            ends = np.searchsorted(places, np.arange(len(piece) + 1))
            for start, end in zip(ends[:-1], ends[1:]):
                found.append(others[start:end][np.argsort(far[start:end], kind="stable")[: self.options.k]])
        return found

    # lcache.torch.Neighbours overrides these.

    def exchange(self, index: Any, rows: Any) -> None:
        """Sends these rows to the other ranks, and stores theirs; None: this rank has no rows."""

    def rows_of(self, embeddings: Any) -> Any:
        """The embeddings of a batch, from a tensor, an array or lists, as an array of float32."""
        if hasattr(embeddings, "detach"):
            embeddings = embeddings.detach().cpu().float().numpy()
        try:
            return self.np.asarray(embeddings, dtype="f4")
        except (TypeError, ValueError) as e:
            raise ArgumentError(f"embeddings are not rows of numbers: {e}") from None

    def are_finite(self, rows: Any) -> Any:
        """A numpy array of bool: which rows are finite."""
        return self.np.isfinite(rows).all(1)

    def clear(self) -> None:
        """Makes room for rows of a new width."""
        self._rows = self.np.zeros((len(self.labels), self.width), dtype="f4")
        self._squares = self.np.full(len(self.labels), self.np.inf, dtype="f4")  # the distance to a missing row is infinite

    def put(self, index: Any, rows: Any) -> None:
        """Sets the rows of samples."""
        self._rows[index], self._squares[index] = rows, (rows * rows).sum(1)

    def between(self, index: Any) -> Any:
        """The squared distances between the samples of index."""
        rows, squares = self._rows[index], self._squares[index]
        return (squares[:, None] + squares[None, :] - 2 * (rows @ rows.T)).clip(0)

    def within(self, index: Any, square: float) -> tuple[Any, Any, Any]:
        """The pairs within a distance, including each sample and itself: places in index, ascending; samples, ascending; squared distances."""
        far = (self._squares[index][:, None] + self._squares[None, :] - 2 * (self._rows[index] @ self._rows.T)).clip(0)
        places, others = self.np.nonzero(far < square)
        return places, others, far[places, others]
