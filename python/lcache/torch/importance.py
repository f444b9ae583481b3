"""Losses and weights of single samples, as job.observe and a training step take them."""

from __future__ import annotations

from typing import Any

import torch

from ..job import Job


def losses(logits: torch.Tensor, labels: Any) -> torch.Tensor:
    """The cross entropy of each sample: what job.observe takes. Its mean is the loss of the optimizer."""
    return torch.nn.functional.cross_entropy(logits, torch.as_tensor(labels, dtype=torch.long, device=logits.device), reduction="none")


def weights(job: Job, indices: Any) -> torch.Tensor:
    """job.weights as a tensor: losses times weights have the gradient of all samples."""
    return torch.frombuffer(bytearray(job.weights(indices)), dtype=torch.float32)
