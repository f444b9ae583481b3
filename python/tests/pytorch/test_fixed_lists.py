"""samples, targets, classes and class_to_idx can be read as in torchvision. An edit raises an error that says what to do."""

import copy
import io
import json
import os
import pickle
import random

import pictures
import pytest
from embedded_servers import folder, root  # noqa: F401

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)

import lcache.torch as lt  # noqa: E402

LISTS = ("samples", "imgs", "targets", "classes")
OF = {"samples": "Subset", "imgs": "Subset", "targets": "target_transform", "classes": "find_classes", "class_to_idx": "find_classes"}


@pytest.fixture(scope="module")
def photos(source_dir):
    return pictures.make(os.path.join(source_dir(), "train"))


@pytest.fixture
def ours(photos, root):
    return lt.ImageFolder(photos, cache=root)


def delete(values):
    del values[1:]


def put(values):
    values[0] = values[1]


def add(values):
    values += [values[0]]


def repeat(values):
    values *= 2


EDITS = [
    delete, put, add, repeat, list.clear, list.pop, list.reverse, list.sort, random.shuffle, lambda v: v.append(v[0]), lambda v: v.extend(v), lambda v: v.insert(0, v[0]),
    lambda v: v.remove(v[0]), lambda v: v.__setitem__(slice(2), []),
]  # fmt: skip


def called(edit, values):
    """Calls a method by its name, because list.pop itself would bypass the class."""
    return getattr(values, edit.__name__)() if getattr(list, edit.__name__, None) is edit else edit(values)


@pytest.mark.parametrize("name", LISTS)
def test_edits_of_lists(ours, name):
    before = list(getattr(ours, name))
    for edit in EDITS:
        with pytest.raises(TypeError, match=f"^ImageFolder.{'samples' if name == 'imgs' else name} can't be edited: .*{OF[name]}"):
            called(edit, getattr(ours, name))
    assert getattr(ours, name) == before and len(ours) == 50


def merge(values):
    values |= {"dog": 3}


@pytest.mark.parametrize("edit", [
    delete, merge, lambda v: v.__setitem__("dog", 3), lambda v: v.update(dog=3), lambda v: v.setdefault("dog", 3), lambda v: v.pop("ant"), lambda v: v.popitem(),
    lambda v: v.clear(), lambda v: v.__delitem__("ant"),
])
def test_edits_of_the_dict(ours, edit):
    with pytest.raises(TypeError, match="^ImageFolder.class_to_idx can't be edited: .*find_classes"):
        edit(ours.class_to_idx)
    assert ours.class_to_idx == {"ant": 0, "bee": 1, "cat": 2}


@pytest.mark.parametrize("name", OF)
def test_assignments(ours, name):
    with pytest.raises(AttributeError, match=f"^ImageFolder.{name} can't be set: .*{OF[name]}"):
        setattr(ours, name, copy.copy(getattr(ours, name)))
    with pytest.raises(AttributeError, match=name):
        delattr(ours, name)

    class Cut(lt.ImageFolder):
        def __init__(self, *args, **more):
            super().__init__(*args, **more)
            setattr(self, name, list(getattr(self, name))[:10])

    with pytest.raises(AttributeError, match=f"^Cut.{name} can't be set: .*{OF[name]}"):
        Cut(ours.root, cache=os.path.dirname(os.path.dirname(ours.job.socket)))


def test_read_as_any_other(ours):
    for name in LISTS:
        fixed = getattr(ours, name)
        plain = list(fixed)
        assert isinstance(fixed, list) and fixed == plain and plain == fixed and (repr(fixed), str(fixed)) == (repr(plain), str(plain))
        assert json.dumps(fixed) == json.dumps(plain) and sorted(fixed) == sorted(plain) and fixed[1:3] == plain[1:3] and fixed + [1] == [*plain, 1]
        for copied in (fixed.copy(), fixed[:], copy.copy(fixed), copy.deepcopy(fixed), pickle.loads(pickle.dumps(fixed)), fixed + []):
            assert type(copied) is list and copied == plain
            copied.append(1)
    fixed = ours.class_to_idx
    plain = dict(fixed)
    assert isinstance(fixed, dict) and fixed == plain and repr(fixed) == repr(plain) and json.dumps(fixed) == json.dumps(plain)
    for copied in (fixed.copy(), dict(fixed), copy.copy(fixed), copy.deepcopy(fixed)):
        assert type(copied) is dict and copied == plain
    again = pickle.loads(pickle.dumps(fixed))
    again["dog"] = 3
    assert again == {**plain, "dog": 3}
    assert torch.tensor(ours.targets).tolist() == ours.targets


def test_in_a_checkpoint(ours):
    """torch.load accepts them, although it accepts few classes by default."""
    file = io.BytesIO()
    torch.save({"classes": ours.classes, "class_to_idx": ours.class_to_idx}, file)
    file.seek(0)
    assert torch.load(file, weights_only=True) == {"classes": ours.classes, "class_to_idx": ours.class_to_idx}


def test_of_a_dataset(folder, root):
    """The same for lcache.torch.Dataset, which also has classes."""
    ours = lt.Dataset(folder.root, cache=root)
    assert (ours.classes, ours.class_to_idx) == (ours.job.classes, {name: label for label, name in enumerate(ours.job.classes)})
    for edit in (lambda: ours.classes.append("x"), lambda: ours.class_to_idx.update(x=1)):
        with pytest.raises(TypeError, match="Dataset.class.* can't be edited: .*Subset"):
            edit()
    for name in ("classes", "class_to_idx"):
        with pytest.raises(AttributeError, match=f"Dataset.{name} can't be set: .*Subset"):
            setattr(ours, name, {})
    assert "x" not in ours.job.classes


def test_pickles_stay_small(ours, photos, root, source_dir):
    """For any number of classes, and in any order of access."""
    assert (ours.samples, ours.targets, ours.classes, ours.class_to_idx) and len(pickle.dumps(ours)) < 1280
    many = pictures.make(os.path.join(source_dir(), "many"), count=300, classes=[f"a-long-name-of-class-{i:04d}" for i in range(300)], side=1)
    dataset = lt.ImageFolder(many, cache=root)
    assert len(dataset.classes) == 300 and len(pickle.dumps(dataset)) < 1280
    again = pickle.loads(pickle.dumps(dataset))
    assert (again.classes, again.class_to_idx, again.samples) == (dataset.classes, dataset.class_to_idx, dataset.samples)
