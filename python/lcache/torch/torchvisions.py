"""The links to torchvision's ImageFolder: its classes as bases, its `transforms`, and the check for overridden methods."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable
from typing import Any

_log = logging.getLogger("lcache")


class StandardTransform:
    """transform and target_transform as one function, as torchvision keeps them in `transforms`."""

    def __init__(self, transform: Callable[[Any], Any] | None, target_transform: Callable[[Any], Any] | None) -> None:
        self.transform, self.target_transform = transform, target_transform

    def __call__(self, image: Any, target: Any) -> tuple[Any, Any]:
        return image if self.transform is None else self.transform(image), target if self.target_transform is None else self.target_transform(target)


def is_overridden(dataset: Any, name: str) -> bool:
    """Whether a class of the program overrides a method of lcache's or torchvision's classes."""
    owner = next((kind for kind in type(dataset).__mro__ if name in vars(kind)), None)
    return owner is not None and owner.__module__.split(".")[0] not in ("lcache", "torchvision")


def with_torchvisions(kind: type) -> type:
    """A subclass of kind and of torchvision's ImageFolder, for programs that check for torchvision's classes. Without torchvision: kind itself."""
    try:
        if importlib.util.find_spec("torchvision") is None:
            return kind
        from torchvision.datasets import ImageFolder
    except Exception as e:  # noqa: BLE001  a torchvision for another torch raises errors of many kinds
        _log.info("lcache.torch.ImageFolder is not an instance of torchvision's, which can't be imported: %s", e)
        return kind
    return type(kind.__name__, (kind, ImageFolder), {"__doc__": kind.__doc__, "__module__": "lcache.torch"})
