"""Neighbours of samples in embedding space, found on a torch device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..neighbour_graph import GraphBank, hnswlib_module
from ..neighbours import MOST, Bank, Options


class Neighbours:
    """For job.importance("spider", neighbours=…): finds exact neighbours on a device, such as "cuda", among any number of samples.

    The embeddings of all samples stay on the device, as float16 on a GPU: 1.3 GB for 1.28 million embeddings of 512 numbers. With gather=True and
    torch.distributed each rank gets the embeddings of all ranks. All ranks must then call job.observe equally often, because it waits for the others.

    On the device "cpu" with more than 50,000 samples, hnswlib finds the neighbours, if it is installed and gather is False. It is not exact, but much faster.
    """

    def __init__(self, device: Any = None, gather: bool = False) -> None:
        """device defaults to that of the first embeddings."""
        self.device, self.gather = device, gather

    def __call__(self, labels: Sequence[int], options: Options) -> Bank:
        on_cpu = self.device is not None and torch.device(self.device).type == "cpu"
        if on_cpu and len(labels) > MOST and not self.gather and hnswlib_module() is not None:
            return GraphBank(labels, options)
        return _TensorBank(labels, options, self.device, self.gather)


class _TensorBank(Bank):
    def __init__(self, labels: Sequence[int], options: Options, device: Any, gather: bool) -> None:
        super().__init__(labels, options)
        self._gather = gather
        self._device = None if device is None else torch.device(device)

    def rows_of(self, embeddings: Any) -> Any:
        if not isinstance(embeddings, torch.Tensor):
            embeddings = torch.from_numpy(super().rows_of(embeddings))
        if self._device is None:
            self._device = embeddings.device
        return embeddings.detach().to(self._device, torch.float32)

    def are_finite(self, rows: Any) -> Any:
        return torch.isfinite(rows).all(1).cpu().numpy()

    def exchange(self, index: Any, rows: Any) -> None:
        dist = torch.distributed
        if not (self._gather and dist.is_available() and dist.is_initialized()):
            return
        mine = None if index is None else (index, rows.cpu().numpy())
        everyone: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, mine)
        for rank, theirs in enumerate(everyone):
            if rank != dist.get_rank() and theirs is not None and theirs[1].shape[1] == self.width:
                self.put(theirs[0], torch.from_numpy(theirs[1]).to(self._device))
                self._known[theirs[0]] = True

    def clear(self) -> None:
        kind = torch.float32 if self._device is None or self._device.type == "cpu" else torch.float16
        self._rows = torch.zeros(len(self.labels), self.width, dtype=kind, device=self._device)
        self._squares = torch.full((len(self.labels),), torch.inf, device=self._device)

    def put(self, index: Any, rows: Any) -> None:
        at = self._places(index)
        self._rows[at] = rows.to(self._rows.dtype)
        self._squares[at] = (self._rows[at].float() ** 2).sum(1)

    def _places(self, index: Any) -> torch.Tensor:
        return torch.as_tensor(index, dtype=torch.int64, device=self._device)

    def between(self, index: Any) -> Any:
        at = self._places(index)
        rows, squares = self._rows[at].float(), self._squares[at]
        return (squares[:, None] + squares[None, :] - 2 * (rows @ rows.T)).clamp(min=0).cpu().numpy()

    def within(self, index: Any, square: float) -> tuple[Any, Any, Any]:
        at = self._places(index)
        far = (self._squares[at][:, None] + self._squares[None, :] - 2 * (self._rows[at] @ self._rows.T).float()).clamp(min=0)
        places, others = torch.nonzero(far < square, as_tuple=True)
        return places.cpu().numpy(), others.cpu().numpy(), far[places, others].cpu().numpy()
