"""Lists the samplers that are known to be pure: a copy yields the same as the sampler, and running it changes only the copy.

Their copies may run in advance in this process. Any other sampler may count its epochs in a file, take indices from a queue, or get them from the training
loop. So its copy runs only in a forked child (forked_child.py). The table lists classes by name; their subclasses do not count. A program declares its own
sampler pure by the attribute lcache_pure = True, which also covers whatever the sampler iterates over.
"""

from __future__ import annotations

from array import array
from typing import Any

import torch
from torch.utils.data import distributed
from torch.utils.data import sampler as torchs

from . import frameworks

_TORCH = (
    torchs.BatchSampler,
    torchs.RandomSampler,
    torchs.SequentialSampler,
    torchs.SubsetRandomSampler,
    torchs.WeightedRandomSampler,
    distributed.DistributedSampler,
)
_DEEPEST = 8  # nested samplers
_PLAIN = (list, tuple, range, array, torch.Tensor)  # of indices, or of batches

# By module, the classes of other packages.
PURE = {
    "accelerate.data_loader": ("BatchSamplerShard", "SeedableRandomSampler", "SkipBatchSampler"),
    "lightning.fabric.utilities.distributed": ("DistributedSamplerWrapper",),
    "lightning.pytorch.overrides.distributed": ("UnrepeatedDistributedSampler", "UnrepeatedDistributedSamplerWrapper", "_IndexBatchSamplerWrapper"),
    "timm.data.distributed_sampler": ("OrderedDistributedSampler", "RepeatAugSampler"),
    "torchdata.stateful_dataloader.sampler": ("BatchSampler", "RandomSampler", "StatefulDistributedSampler"),
    "transformers.trainer_pt_utils": (
        "BatchRebalanceSampler",
        "DistributedLengthGroupedSampler",
        "DistributedSamplerWithLoop",
        "LengthGroupedSampler",
        "ShardSampler",
    ),
}
_SAME = {"lightning_fabric.": "lightning.fabric.", "pytorch_lightning.": "lightning.pytorch."}  # Lightning's packages have two names each


def impure_part(batches: Any) -> Any:
    """The outermost part of a batch sampler that is not known to be pure: itself, or a sampler that it iterates over. None: it is pure."""
    for _ in range(_DEEPEST):
        if getattr(batches, "lcache_pure", False) is True or type(batches) in _PLAIN:
            return None
        if {"silent", "inner"} <= getattr(batches, "__dict__", {}).keys():
            batches = batches.inner  # below a wrapper of lcache's
            continue
        if not _is_known(batches):
            return batches
        inner = frameworks.inner_sampler(batches)
        if inner is None:
            return None
        batches = inner
    return batches


def _is_known(sampler: Any) -> bool:
    kind = type(sampler)
    if "__iter__" in getattr(sampler, "__dict__", {}):
        return False
    module = kind.__module__
    for name, usual in _SAME.items():
        module = module.replace(name, usual) if module.startswith(name) else module
    return kind in _TORCH or getattr(sampler, "cuts_as_torch", False) is True or kind.__name__ in PURE.get(module, ())
