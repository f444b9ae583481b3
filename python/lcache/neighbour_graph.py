"""Neighbours of samples in embedding space, found with a graph, for datasets too large to compare with all samples. It needs the package hnswlib.

The graph proposes near samples, and their distances are computed from the newest embeddings. In the graph a sample keeps the embedding that it had at
the beginning of the epoch, or when it was first seen. Replacing vectors would degrade the graph, so it is built again in each epoch. It misses some
neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .errors import Error
from .neighbours import Bank, Options

_LINKS, _WIDTH = 8, 100  # hnswlib's M and ef_construction


def hnswlib_module() -> Any:
    """The package hnswlib; None if it is not installed."""
    try:
        import hnswlib
    except ImportError:
        return None
    return hnswlib


class GraphBank(Bank):
    """A Bank whose neighbours a graph proposes. It keeps embeddings as float16, and a second time in the graph."""

    def __init__(self, labels: Sequence[int], options: Options) -> None:
        super().__init__(labels, options)
        self._hnswlib = hnswlib_module()
        if self._hnswlib is None:
            raise Error('importance: neighbours="hnswlib" needs the package hnswlib: pip install hnswlib')
        self._graph: Any = None
        self._built = -1  # the epoch that the graph was built in
        self._placed = self.np.zeros(len(labels), dtype=bool)

    def _estimate(self, epoch: int) -> None:
        super()._estimate(epoch)
        if epoch != self._built:
            self._built, self._graph = epoch, None
        self._place()

    def _place(self) -> None:
        """Adds known samples to the graph that are not in it. Without a graph it builds one of all known samples."""
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
        """For each sample of index, about k samples that the graph finds near it. If the graph reaches fewer than k, fewer are requested."""
        k, rows = min(self.options.k + 1, int(self._placed.sum())), self._rows[index].astype("f4")
        while k > 0:
            try:
                return self._graph.knn_query(rows, k=k)[0].astype("i8")
            except RuntimeError:
                k //= 2
        return [self.np.zeros(0, dtype="i8") for _ in index]
