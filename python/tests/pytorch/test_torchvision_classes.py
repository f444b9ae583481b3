"""Programs that check for torchvision's classes find them, but import lcache.torch does not import torchvision."""

import os
import pickle
import subprocess
import sys

import pictures
import pytest
from embedded_servers import root  # noqa: F401

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)
torchvision = pytest.importorskip("torchvision", reason="torchvision is not installed")

from torch.utils import data  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

import lcache.torch as lt  # noqa: E402


@pytest.fixture(scope="module")
def photos(source_dir):
    return pictures.make(os.path.join(source_dir(), "train"))


class Mine(lt.ImageFolder):
    pass


@pytest.mark.parametrize("kind", [lt.ImageFolder, Mine])
def test_is_an_instance(photos, root, kind):
    ours = kind(photos, cache=root)
    for theirs in (torchvision.datasets.ImageFolder, torchvision.datasets.DatasetFolder, torchvision.datasets.VisionDataset):
        assert isinstance(ours, theirs) and issubclass(kind, theirs)
    assert isinstance(ours, lt.Dataset) and type(ours) is kind and lt.ImageFolder is lt.ImageFolder and "ImageFolder" in dir(lt)
    for method in ("__getitem__", "__getitems__", "__len__", "__repr__"):
        assert getattr(lt.ImageFolder, method) is getattr(lt.Dataset, method)
    again = pickle.loads(pickle.dumps(ours))
    assert type(again) is kind and again.samples == ours.samples and len(pickle.dumps(ours)) < 1280
    assert "Subset" in repr(data.Subset(ours, [1])) and repr(ours).startswith(f"<{kind.__name__} of 50 samples")


def test_a_sampler_that_looks(photos, root):
    """The checks of imbalanced-dataset-sampler."""
    def labels(dataset):
        if isinstance(dataset, torchvision.datasets.ImageFolder):
            return [label for _, label in dataset.imgs]
        raise NotImplementedError

    assert labels(lt.ImageFolder(photos, cache=root)) == labels(torchvision.datasets.ImageFolder(photos))


def flipped(label):
    return -label


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("more", [{"transform": v2.PILToTensor(), "target_transform": flipped}, {}, {"target_transform": flipped}])
def test_the_wrapper_of_transforms_v2(photos, root, more, workers):
    """torchvision's wrapper takes the transforms from the dataset, and applies them itself."""
    wrap = torchvision.datasets.wrap_dataset_for_transforms_v2
    ours = lt.DataLoader(wrap(lt.ImageFolder(photos, cache=root, **more)), 8, num_workers=workers, collate_fn=list)
    theirs = data.DataLoader(wrap(torchvision.datasets.ImageFolder(photos, **more)), 8, collate_fn=list)
    assert len(ours) == len(theirs)
    for got, want in zip(ours, theirs):
        assert [(pixels(image), label) for image, label in got] == [(pixels(image), label) for image, label in want]


def pixels(image):
    return (image if isinstance(image, torch.Tensor) else v2.functional.pil_to_tensor(image)).tolist()


def test_transforms_as_torchvisions(photos, root):
    """transform and target_transform are also available as one function. Values that a program sets later are used."""
    ours = lt.ImageFolder(photos, len, flipped, decode=bytes, cache=root)
    size = os.path.getsize(ours.samples[-1][0])
    assert ours[-1] == (size, -2) and ours.transforms(b"123", 4) == (3, -4)
    ours.transform, ours.target_transform = None, len
    ours.target_transform = None
    assert ours[-1][1] == 2 and len(ours[-1][0]) == size
    ours.transforms = lambda image, label: (label, len(image))
    assert ours[-1] == (2, size)


# In a new process: this one has imported torchvision.
IMPORTS = """
import sys
import lcache.torch
from lcache.torch import DataLoader, Dataset
assert not any(name.split(".")[0] == "torchvision" for name in sys.modules)
from lcache.torch import ImageFolder
assert "torchvision.datasets" in sys.modules and ImageFolder.__mro__.index(sys.modules["torchvision.datasets"].VisionDataset)
assert ImageFolder is lcache.torch.ImageFolder and "ImageFolder" in lcache.torch.__all__
try:
    lcache.torch.ImageFolders
except AttributeError as e:
    assert str(e) == "module 'lcache.torch' has no attribute 'ImageFolders'"
"""
WITHOUT = """
import sys
{}
from lcache.torch import ImageFolder, Dataset
assert [kind.__module__.split(".")[0] for kind in ImageFolder.__mro__[:3]] == ["lcache", "lcache", "torch"], ImageFolder.__mro__
class Mine(ImageFolder):
    def __getitem__(self, index):
        return super().__getitem__(index), self.loader(self.samples[index][0])
"""


@pytest.mark.parametrize("code", [IMPORTS, WITHOUT.format('sys.modules["torchvision"] = None'), WITHOUT.format("sys.path.insert(0, {broken!r})")])
def test_imports(code, tmp_path):
    """torchvision is imported at the first use of ImageFolder, which works without it if it is missing or does not fit torch."""
    os.makedirs(tmp_path / "torchvision")
    (tmp_path / "torchvision" / "__init__.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code.replace("{broken!r}", repr(str(tmp_path)))], capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode == 0, done.stderr
