"""lcache for PyTorch: datasets over lcache, and loaders whose order the server knows in advance.

    dataset = ImageFolder("/data/train", transform, cache="/nvme/lcache")
    loader = DataLoader(dataset, batch_size=256, shuffle=True, num_workers=8, seed=0)

Everything works as in torch, with one addition: batch samplers push to the server the order in which they will request samples. Needs torch, and PIL for
images. docs/pytorch-inside.md shows the path of a sample through these modules.
"""

from typing import TYPE_CHECKING, Any

from . import image_folder
from ._order.importance_sampler import ImportanceSampler
from .checking import check
from .dataset import Dataset
from .headspace import headspace
from .hugging_face import cached
from .importance import losses, weights
from .loader import DataLoader, watch
from .neighbours import Neighbours
from .sample import Sample
from .sampler import BatchSampler
from .torchvisions import with_torchvisions

if TYPE_CHECKING:
    from .image_folder import ImageFolder

__all__ = [
    "BatchSampler", "DataLoader", "Dataset", "ImageFolder", "ImportanceSampler", "Neighbours", "Sample", "cached", "check", "headspace", "losses", "watch",
    "weights",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Makes ImageFolder at its first use. It derives from torchvision's, which this package does not import before."""
    if name == "ImageFolder":
        return globals().setdefault(name, with_torchvisions(image_folder.ImageFolder))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
