"""Losses and weights of single samples, for job.observe and a training step."""

from __future__ import annotations

from typing import Any

import torch

from ..job import Job


def losses(logits: torch.Tensor, labels: Any) -> torch.Tensor:
    """The cross entropy of each sample, for job.observe. Its mean is the loss to optimize."""
    return torch.nn.functional.cross_entropy(logits, torch.as_tensor(labels, dtype=torch.long, device=logits.device), reduction="none")


def weights(job: Job, indices: Any) -> torch.Tensor:
    """job.weights as a tensor. The expected gradient of the weighted losses is that of the mean over all samples."""
    return torch.frombuffer(bytearray(job.weights(indices)), dtype=torch.float32)
