"""Subclasses of lcache's ImageFolder return the same as the same subclasses of torchvision's."""

import os
import shutil

import pictures
import pytest
from embedded_servers import root  # noqa: F401

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)
torchvision = pytest.importorskip("torchvision", reason="torchvision is not installed")

from torch.utils import data  # noqa: E402

import lcache  # noqa: E402
import lcache.torch as lt  # noqa: E402

TO_TENSOR = torchvision.transforms.ToTensor()


@pytest.fixture(scope="module")
def photos(source_dir):
    return pictures.make(os.path.join(source_dir(), "train"))


@pytest.fixture
def requested(monkeypatch):
    """The number of samples in each request of this process."""
    seen, get = [], lcache.job.Job.get
    monkeypatch.setattr(lcache.job.Job, "get", lambda job, indices, *args, **more: (seen.append(len(indices)), get(job, indices, *args, **more))[1])
    return seen


def with_paths(base):
    class WithPaths(base):
        def __getitem__(self, index):
            path, _ = self.samples[index]
            return (*super().__getitem__(index), path)

    return WithPaths


def by_loader(base):
    class ByLoader(base):
        """A copy of torchvision's own __getitem__."""

        def __getitem__(self, index):
            path, target = self.imgs[index]
            image = self.loader(path)
            if self.transform is not None:
                image = self.transform(image)
            return image, target, index

    return ByLoader


def pairs(base):
    class Pairs(base):
        """A triplet: a sample, another one of its class, and one of another class."""

        def __getitem__(self, index):
            path, target = self.samples[index]
            same, other = (next(p for p, t in self.samples if (t == target) == equal and p != path) for equal in (True, False))
            return [self.transform(self.loader(p)) for p in (path, same, other)], target

    return Pairs


def beside(base):
    class Masks(base):
        """A mask, which is not a sample."""

        def __getitem__(self, index):
            return (*super().__getitem__(index), self.transform(self.loader(os.path.join(os.path.dirname(self.root), "mask.png"))))

    return Masks


@pytest.mark.parametrize("make", [with_paths, by_loader, pairs, beside])
@pytest.mark.parametrize("workers", [0, 2])
def test_idioms_of_torchvision(photos, root, make, workers):
    some = next(os.path.join(photos, "ant", name) for name in os.listdir(os.path.join(photos, "ant")) if name.endswith(".png"))
    shutil.copy(some, os.path.join(os.path.dirname(photos), "mask.png"))
    theirs, ours = make(torchvision.datasets.ImageFolder)(photos, TO_TENSOR), make(lt.ImageFolder)(photos, TO_TENSOR, cache=root)
    loader = lt.DataLoader(ours, 8, shuffle=True, seed=2, num_workers=workers)
    reference = data.DataLoader(theirs, 8, shuffle=True, generator=torch.Generator().manual_seed(2))
    for _ in range(2):
        for got, want in zip(loader, reference):
            assert len(got) == len(want) and all(same(a, b) for a, b in zip(got, want))
        assert loader.batch_sampler.order_ahead.exact
    assert same(ours[-1], theirs[-1])


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    return len(a) == len(b) and all(map(same, a, b)) if isinstance(a, (list, tuple)) else a == b


def test_loader_costs_one_request_a_batch(photos, root, requested):
    ours = by_loader(lt.ImageFolder)(photos, len, decode=bytes, cache=root)
    loader = lt.DataLoader(ours, 10)
    assert sum(len(labels) for _, labels, _ in loader) == len(ours) and requested == [10] * len(loader)
    with pytest.raises(lcache.DecodeError, match=f"sample 3, .* of {photos} can't be decoded: ZeroDivisionError"):
        ours.decode = lambda raw: 1 / 0
        ours[3]


def test_a_loader_is_refused(photos, root):
    class Own(lt.ImageFolder):
        def loader(self, path):
            return path

    with pytest.raises(TypeError, match="Own.loader: .*give decode="):
        Own("/nowhere")
    ours = lt.ImageFolder(photos, decode=bytes, cache=root)
    with pytest.raises(AttributeError, match="ImageFolder.loader can't be set: .*give decode="):
        ours.loader = bytes
    ours.decode = len
    assert ours[0][0] == os.path.getsize(ours.samples[0][0])


def halved(base):
    class Halved(base):
        def make_dataset(self, *args, **more):
            return super().make_dataset(*args, **more)[::-2]

    return Halved


def relabelled(base):
    class Relabelled(base):
        @staticmethod
        def make_dataset(directory, class_to_idx, extensions=None, is_valid_file=None, allow_empty=False):
            paths = sorted(os.path.join(top, name) for top, _, names in os.walk(directory) for name in names if name.lower().endswith(extensions))
            return [(path, i % 7) for i, path in enumerate(paths)]

    return Relabelled


def everything(base):
    class Everything(base):
        def make_dataset(self, *args, **more):
            return super().make_dataset(*args, **more)

    return Everything


def nested(base):
    class Nested(base):
        def find_classes(self, directory):
            return ["bee", "ant/more"], {"bee": 4, "ant/more": 2}

    return Nested


def size_of(image):
    return torch.tensor([len(image)])


def read(path):
    with open(path, "rb") as f:
        return f.read()


@pytest.mark.parametrize("more", [{}, {"is_valid_file": lambda path: path.endswith("g") and "7" in path}])
@pytest.mark.parametrize("make", [halved, relabelled, everything, nested])
def test_samples_of_its_own(photos, root, make, more):
    if make is relabelled and more:
        pytest.skip("it asks for extensions")
    theirs = make(torchvision.datasets.ImageFolder)(photos, size_of, loader=read, **more)
    ours = make(lt.ImageFolder)(photos, size_of, decode=bytes, cache=root, **more)
    assert len(ours) == len(theirs) > 0
    assert (ours.samples, ours.imgs, ours.targets, ours.classes, ours.class_to_idx) == (
        theirs.samples, theirs.imgs, theirs.targets, theirs.classes, theirs.class_to_idx)
    loader = lt.DataLoader(ours, 4, shuffle=True, seed=2)
    reference = data.DataLoader(theirs, 4, shuffle=True, generator=torch.Generator().manual_seed(2))
    for _ in range(2):
        got, want = list(loader), list(reference)
        assert len(got) == len(want) and all(torch.equal(a, b) for x, y in zip(got, want) for a, b in zip(x, y))
        assert loader.batch_sampler.order_ahead.exact
    assert ours[-1] == theirs[-1]
    ours.decode = lambda raw: 1 / 0
    with pytest.raises(lcache.DecodeError) as raised:
        ours[1]
    assert raised.value.index == 1 and theirs.samples[1][0].endswith("/" + raised.value.sample)


def test_samples_that_are_refused(photos, root):
    class Elsewhere(lt.ImageFolder):
        def make_dataset(self, *args, **more):
            return [("/etc/hostname", 0)]

    class Both(lt.ImageFolder):
        def make_dataset(self, directory, **more):
            some = next(name for name in os.listdir(directory + "/cat") if name.endswith("png"))
            return [(f"{directory}/cat/{some}", 0), (f"{directory}/cat/{some}", 1)]

    with pytest.raises(lcache.ArgumentError, match=f"Elsewhere.make_dataset lists '/etc/hostname', which is not among the 50 samples of {photos}: give"):
        Elsewhere(photos, cache=root)
    with pytest.raises(lcache.ArgumentError, match=r"'cat/.*png' is listed with the labels 0 and 1: "):
        Both(photos, cache=root)


def floats(base):
    class Floats(base):
        def find_classes(self, directory):
            classes, labels = super().find_classes(directory)
            return classes, {name: float(label) for name, label in labels.items()}

    return Floats


def multi_label(base):
    class MultiLabel(base):
        @staticmethod
        def make_dataset(*args, **options):
            found = torchvision.datasets.DatasetFolder.make_dataset(*args, **options)
            return [(path, torch.tensor([label, 1 - label])) for path, label in found]

    return MultiLabel


def its_own_table(base):
    class OwnTable(base):
        """A subclass may use attributes such as kept, job names and return_index."""

        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self.kept, self.return_index = list(range(len(self.samples)))[::-1], True

        def __getitem__(self, index):
            return (*super().__getitem__(self.kept[index]), self.return_index)

    return OwnTable


@pytest.mark.parametrize("kind", [floats, multi_label, its_own_table])
def test_labels_and_names_of_the_program(photos, root, kind):
    ours, theirs = kind(lt.ImageFolder)(photos, TO_TENSOR, cache=root), kind(torchvision.datasets.ImageFolder)(photos, TO_TENSOR)
    assert len(ours) == len(theirs)
    for (image, label, *rest), (image_there, label_there, *rest_there) in zip(ours, theirs):
        assert torch.equal(image, image_there) and type(label) is type(label_there) and rest == rest_there
        assert torch.equal(torch.as_tensor(label), torch.as_tensor(label_there))
