"""Neighbours of samples in embedding space, found by a graph where there are too many samples to compare with all. It needs hnswlib, a package of its own.

The graph proposes near samples, and their distances are computed from the newest embeddings. A sample keeps the place in the graph that it had at the
epoch's beginning, or when it was first seen: vectors that are replaced spoil a graph, so it is built again in each epoch. Some neighbours are missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .errors import Error
from .neighbours import Bank, Options

_LINKS, _WIDTH = 8, 100  # hnswlib's M and ef_construction


def hnswlib_module() -> Any:
    """The package hnswlib; None where it is not installed."""
    try:
        import hnswlib
    except ImportError:
        return None
    return hnswlib


class GraphBank(Bank):
    """A Bank whose neighbours a graph proposes. Embeddings are kept as float16, and once more in the graph."""

    def __init__(self, labels: Sequence[int], options: Options) -> None:
        super().__init__(labels, options)
        self._hnswlib = hnswlib_module()
        if self._hnswlib is None:
            raise Error('importance: neighbours="hnswlib" needs the package hnswlib: pip install hnswlib')
        self._graph: Any = None
        self._built = -1  # the epoch whose graph it is
        self._placed = self.np.zeros(len(labels), dtype=bool)

    def _estimate(self, epoch: int) -> None:
        super()._estimate(epoch)
        if epoch != self._built:
            self._built, self._graph = epoch, None
        self._place()

    def _place(self) -> None:
        """Puts samples into the graph that are not in it: all that are known, if there is none."""
        np = self.np
        if self._graph is None:
            self._graph = self._hnswlib.Index(space="l2", dim=self.width)
            self._graph.init_index(max_elements=len(self.labels), M=_LINKS, ef_construction=_WIDTH)
            self._graph.set_ef(self.options.k + 1)  # the sample itself may be among them
            self._placed[:] = False
        new = np.flatnonzero(self._known & ~self._placed)
        if len(new):
            self._graph.add_items(self._rows[new].astype("f4"), new)
            self._placed[new] = True

    def clear(self) -> None:
        self._rows = self.np.zeros((len(self.labels), self.width), dtype="f2")
        self._graph = None

    def put(self, index: Any, rows: Any) -> None:
        self._rows[index] = rows

    def between(self, index: Any) -> Any:
        rows = self._rows[index].astype("f4")
        squares = (rows * rows).sum(1)
        return (squares[:, None] + squares[None, :] - 2 * (rows @ rows.T)).clip(0)

    def within(self, index: Any, square: float) -> tuple[Any, Any, Any]:
        np = self.np
        found = []
        for place, (row, near) in enumerate(zip(self._rows[index].astype("f4"), self._proposed(index))):
            near = np.sort(near)
            apart = self._rows[near].astype("f4") - row
            far = (apart * apart).sum(1)
            found.append((np.full(int((far < square).sum()), place), near[far < square], far[far < square]))
        places, others, far = ([part[k] for part in found] for k in range(3))
        if not found:
            return np.zeros(0, dtype="i8"), np.zeros(0, dtype="i8"), np.zeros(0, dtype="f4")
        return np.concatenate(places), np.concatenate(others), np.concatenate(far)

    def _proposed(self, index: Any) -> Any:
        """The samples that the graph finds near each of some, about k of them. It may reach fewer than there are: then they are asked for fewer."""
        k, rows = min(self.options.k + 1, int(self._placed.sum())), self._rows[index].astype("f4")
        while k > 0:
            try:
                return self._graph.knn_query(rows, k=k)[0].astype("i8")
            except RuntimeError:
                k //= 2
        return [self.np.zeros(0, dtype="i8") for _ in index]
