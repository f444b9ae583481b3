"""Loaders and datasets behave like torch's: they are generic, have a length, can be pickled, and have torchvision's arguments and errors."""

import inspect
import os
import pickle
import time
import typing

import pictures
import pytest
from embedded_servers import folder, root  # noqa: F401

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)
torchvision = pytest.importorskip("torchvision", reason="torchvision is not installed")

from torch.utils import data  # noqa: E402

import lcache  # noqa: E402
import lcache.torch as lt  # noqa: E402
from lcache._client.schemes import RECORD_FLAGS  # noqa: E402
from lcache.torch._order.push import Pusher  # noqa: E402


def index(_, sample):
    return sample.index


def lists(loader):
    return [batch.tolist() for batch in loader]


def test_generic(folder, root):
    dataset = lt.Dataset[int](folder.root, index, cache=root)
    assert dataset[3] == 3 and lists(lt.DataLoader[int](dataset, 100))[0][:2] == [0, 1]
    for kind in (lt.Dataset, lt.DataLoader):
        assert typing.get_args(kind[int]) == (int,) and kind.__parameters__


def test_keywords_are_checked():
    for call, name in ((lambda: lt.Dataset("/nowhere", bugdet=1), "Dataset"), (lambda: lt.DataLoader([1], shufle=True), "DataLoader"),
                       (lambda: lt.ImageFolder("/nowhere", transfrom=len), "ImageFolder")):
        with pytest.raises(TypeError, match=rf"^{name}.__init__\(\) got an unexpected keyword argument"):
            call()


def test_all_of_torchs_arguments():
    theirs, ours = (inspect.signature(kind.__init__).parameters for kind in (data.DataLoader, lt.DataLoader))
    assert set(theirs) | {"seed"} == set(ours)
    assert [(p.name, p.default, p.kind) for p in theirs.values()] == [(p.name, p.default, p.kind) for p in ours.values() if p.name != "seed"]
    torchvisions = set(inspect.signature(torchvision.datasets.ImageFolder.__init__).parameters)
    assert torchvisions <= set(inspect.signature(lt.ImageFolder.__init__).parameters)


@pytest.mark.parametrize("kind, others", [
    (lt.Dataset, {"job": "Job | str | None", "group": "str | None", "timeout": "float | None"}),
    (lt.ImageFolder, {"job": "Job | str | None", "group": "str | None", "timeout": "float | None", "ext": "str | Iterable[str] | None", "labels": "None"}),
])
def test_all_of_opens_keywords(kind, others):
    """The signature repeats lcache.open's keyword arguments, with their types and defaults. A few have another type here, with None as the default."""
    has = inspect.signature(kind.__init__).parameters
    for name, theirs in inspect.signature(lcache.open).parameters.items():
        if name != "source" and not (kind is lt.ImageFolder and (name == "ranges" or name.replace("_", "-") in RECORD_FLAGS)):
            want = (others[name], None) if name in others else (theirs.annotation, theirs.default)
            assert (has[name].annotation, has[name].default) == want, name


@pytest.mark.parametrize("workers, persistent", [(0, False), (1, False), (1, True)])
def test_length_of_an_iterator(folder, root, workers, persistent):
    loader = lt.DataLoader(lt.Dataset(folder.root, index, cache=root), 16, num_workers=workers, persistent_workers=persistent)
    iterator = iter(loader)
    next(iterator)
    assert len(iterator) == len(loader) == 15


@pytest.mark.parametrize("kind", ["loader", "watched", "own batches"])
def test_a_loader_pickles(folder, root, kind):
    dataset = lt.Dataset(folder.root, index, cache=root)
    if kind == "loader":
        loader = lt.DataLoader(dataset, 16, shuffle=True, seed=3)
    elif kind == "watched":
        loader = lt.watch(data.DataLoader(dataset, 16, shuffle=True, generator=torch.Generator().manual_seed(3)))
    else:
        loader = lt.watch(data.DataLoader(dataset, batch_sampler=[[1, 2], [3]]))
    again = pickle.loads(pickle.dumps(loader))
    assert type(again).__name__ == "DataLoader" and isinstance(again, data.DataLoader)
    for epoch in range(2):
        assert lists(again) == lists(loader)
        assert again.state_dict()["epoch"] == epoch + 1 and again.batch_sampler.order_ahead.exact
    third = pickle.loads(pickle.dumps(again))
    assert lists(third) == lists(again), "its generator goes on"


@pytest.fixture(scope="module")
def photos(source_dir):
    return pictures.make(os.path.join(source_dir(), "train"))


def odd(path):
    return path.lower().endswith(".png") and int(path.rsplit("-", 1)[1].split(".")[0]) % 2 == 1


def every(path):
    return True


def same(ours, theirs):
    assert len(ours) == len(theirs) > 0
    assert (ours.classes, ours.class_to_idx, ours.targets, ours.samples, ours.imgs) == (
        theirs.classes, theirs.class_to_idx, theirs.targets, theirs.samples, theirs.imgs)
    loader = lt.DataLoader(ours, 4, shuffle=True, seed=2)
    reference = data.DataLoader(theirs, 4, shuffle=True, generator=torch.Generator().manual_seed(2))
    for _ in range(2):
        got, want = list(loader), list(reference)
        assert len(got) == len(want)
        for (images, labels), (others, targets) in zip(got, want):
            assert torch.equal(images, others) and torch.equal(labels, targets)
        assert loader.batch_sampler.order_ahead.exact
    assert torch.equal(ours[-1][0], theirs[-1][0]) and ours[-1][1] == theirs[-1][1]
    with pytest.raises(IndexError):
        ours[len(theirs)]


def size_of(image):
    return torch.tensor([len(image)])


def decoded(path):
    with open(path, "rb") as f:
        return f.read()


@pytest.mark.parametrize("is_valid_file", [odd, every])
def test_is_valid_file(photos, root, is_valid_file):
    same(lt.ImageFolder(photos, size_of, is_valid_file=is_valid_file, decode=bytes, cache=root),
         torchvision.datasets.ImageFolder(photos, size_of, loader=decoded, is_valid_file=is_valid_file))


class Some(torchvision.datasets.ImageFolder):
    def find_classes(self, directory):
        return ["bee", "cat"], {"cat": 0, "bee": 7}


class OurSome(lt.ImageFolder):
    def find_classes(self, directory):
        assert os.path.isdir(directory)
        return ["bee", "cat"], {"cat": 0, "bee": 7}


@pytest.mark.parametrize("more", [{}, {"is_valid_file": odd}])
def test_find_classes(photos, root, more):
    same(OurSome(photos, size_of, lambda label: label + 1, decode=bytes, cache=root, **more), Some(photos, size_of, lambda label: label + 1, decoded, **more))


def test_kept_samples_in_workers_and_wrappers(photos, root):
    """The kept samples have their own indices. The pushed indices are the job's."""
    ours = lt.ImageFolder(photos, size_of, is_valid_file=odd, decode=bytes, cache=root)
    theirs = torchvision.datasets.ImageFolder(photos, size_of, loader=decoded, is_valid_file=odd)
    again = pickle.loads(pickle.dumps(ours))
    assert (len(again), again.samples) == (len(theirs), theirs.samples)
    for wrap in (lambda d: d, lambda d: data.Subset(d, range(len(d) - 1, 3, -2)), lambda d: data.ConcatDataset([d, d])):
        loader = lt.DataLoader(wrap(ours), 4, num_workers=1)
        for (a, b), (x, y) in zip(loader, data.DataLoader(wrap(theirs), 4)):
            assert torch.equal(a, x) and torch.equal(b, y)
    assert ours.job.stats()["jobs"][0]["divergences"] == 0


def test_transforms(photos, root):
    ours = lt.ImageFolder(photos, decode=bytes, transforms=lambda image, label: (len(image), -label), cache=root)
    assert [ours[i] for i in (0, 40)] == [(os.path.getsize(path), -label) for path, label in (ours.samples[0], ours.samples[40])]
    with pytest.raises(ValueError, match="Only transforms or transform/target_transform"):
        lt.ImageFolder(photos, len, transforms=len, cache=root)


def test_extensions(photos, root):
    ours = lt.ImageFolder(photos, decode=bytes, extensions=(".txt",), allow_empty=True, cache=root)
    theirs = torchvision.datasets.DatasetFolder(photos, decoded, (".txt",), allow_empty=True)
    assert (ours.samples, ours.targets, ours.classes) == (theirs.samples, theirs.targets, theirs.classes)
    assert ours[0] == theirs[0]
    for wrong in ({"extensions": (".png",), "is_valid_file": odd}, {"extensions": (".png",), "ext": (".png",)}):
        with pytest.raises(ValueError):
            lt.ImageFolder(photos, cache=root, **wrong)


@pytest.mark.parametrize("more", [{"is_valid_file": lambda path: "/cat/" in path}, {"extensions": (".txt",)}])
def test_empty_classes(photos, root, more):
    with pytest.raises(FileNotFoundError) as ours:
        lt.ImageFolder(photos, cache=root, **more)
    with pytest.raises(FileNotFoundError) as theirs:
        torchvision.datasets.DatasetFolder(photos, decoded, **more)
    assert "is_valid_file" not in more or str(ours.value) == str(theirs.value)
    assert "bee" in str(ours.value)
    assert len(lt.ImageFolder(photos, cache=root, allow_empty=True, **more)) == len(torchvision.datasets.DatasetFolder(photos, decoded, allow_empty=True, **more))


def test_a_loader_of_paths_is_refused():
    with pytest.raises(TypeError, match="give decode=, a function of bytes"):
        lt.ImageFolder("/nowhere", loader=torchvision.datasets.folder.default_loader)


def test_lists_are_made_once(photos, root, monkeypatch):
    """As in torchvision, they are cheap attributes. targets does not request names."""
    ours = lt.ImageFolder(photos, cache=root)
    names = lt.dataset.Job.names
    monkeypatch.setattr(lt.dataset.Job, "names", lambda *_: pytest.fail("names were asked for"))
    assert ours.targets is ours.targets and len(ours.targets) == len(ours)
    assert ours.classes is ours.classes and ours.class_to_idx is ours.class_to_idx
    monkeypatch.setattr(lt.dataset.Job, "names", names)
    assert ours.samples is ours.samples is ours.imgs
    plain = lt.Dataset(photos, cache=root)
    first = plain.classes, plain.class_to_idx
    for name in ("call", "answer", "send_early", "attach"):
        monkeypatch.setattr(plain.job._link, name, lambda *_: pytest.fail("the server was asked again"))
        monkeypatch.setattr(ours.job._link, name, lambda *_: pytest.fail("the server was asked again"))
    assert plain.classes is first[0] and plain.class_to_idx is first[1]
    for name in ("targets", "samples", "imgs", "classes", "class_to_idx"):
        assert getattr(ours, name) is getattr(ours, name)


def test_an_older_server_tells_labels_by_names(photos, root):
    ours = lt.ImageFolder(photos, cache=root)
    want = ours.job.labels()
    ours.job._link._known = ours.job.info._replace(features=["report", "lend"])
    assert ours.job.labels() == want and want.tolist() == ours.targets


def test_one_by_one_in_a_large_batch(folder, root):
    """ConcatDataset requests a batch's samples one by one. The cost of each does not depend on the size of the batch."""
    ours = lt.Dataset(folder.root, index, cache=root)
    both = data.ConcatDataset([ours] * 100)
    seen = []
    tagged = lt._order.tagged_batch.TaggedBatch

    class Counted(list):
        def __contains__(self, item):
            seen.append(item)
            return super().__contains__(item)

    batch = list(range(len(both)))
    pusher = Pusher(lt._order.wrappers.Translation(both), lambda *_: None)
    parts = {leaf: Counted(part) for leaf, part in pusher.translation.parts(batch).items()}
    began = time.perf_counter()
    got = [both[i] for i in tagged(batch, None, parts)]
    assert got == [i % 240 for i in batch] and len(seen) == 1
    assert time.perf_counter() - began < 30
