"""Names that are not UTF-8 are decoded as os.fsdecode does. Messages can be written to any stream."""

import os
import pickle

import pictures
import pytest
from embedded_servers import root  # noqa: F401

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)
torchvision = pytest.importorskip("torchvision", reason="torchvision is not installed")

import lcache  # noqa: E402
import lcache.torch as lt  # noqa: E402


@pytest.fixture
def photos(tmp_path):
    """Pictures in class folders. The names of two classes, and that of the folder above, contain bytes that are not UTF-8."""
    return pictures.make(os.path.join(tmp_path, os.fsdecode(b"photos\xe9")), 12, tuple(map(os.fsdecode, (b"caf\xe8", b"caf\xe9", "café".encode(), b"zoo"))))


def one(index, _):
    return index


@pytest.mark.parametrize("workers", [0, 1])
def test_as_torchvision(photos, root, workers):
    ours, theirs = lt.ImageFolder(photos, cache=os.path.join(root, os.fsdecode(b"cache\xff"))), torchvision.datasets.ImageFolder(photos)
    assert (ours.classes, ours.class_to_idx, ours.targets) == (theirs.classes, theirs.class_to_idx, theirs.targets)
    assert len(set(ours.classes)) == 4 and ours.samples == theirs.samples
    assert ours.job.source == photos and ours.job.stats()["jobs"][0]["name"] == os.path.basename(photos)
    loader = lt.DataLoader(ours, batch_size=3, num_workers=workers, collate_fn=list)
    assert [label for batch in loader for _, label in batch] == theirs.targets
    again = pickle.loads(pickle.dumps(ours))
    assert (again.classes, again[5][1]) == (theirs.classes, theirs.targets[5])


def test_a_class_of_ones_own(photos, root):
    """A subclass may choose classes by such names."""

    class Some(lt.ImageFolder):
        def find_classes(self, directory):
            return [os.fsdecode(b"caf\xe9")], {os.fsdecode(b"caf\xe9"): 7}

    ours = Some(photos, cache=root)
    assert set(ours.targets) == {7} and all(os.fsencode(path).split(b"/")[-2 if b"/more/" not in os.fsencode(path) else -3] == b"caf\xe9" for path, _ in ours.samples)


def test_labels_jobs_and_filters(photos, root, tmp_path):
    """A file of labels, a job's name, an extension and a class may have such names, too."""
    names = [os.path.relpath(path, photos) for path, _ in torchvision.datasets.ImageFolder(photos).samples]
    odd = os.path.join(photos, "zoo", os.fsdecode(b"x.b\xfcn"))
    with open(odd, "wb") as f:
        f.write(b"odd")
    labels = tmp_path / os.fsdecode(b"labels\xe9.csv")
    labels.write_bytes(b"\n".join(os.fsencode(name) + (b",kl\xe8" if i % 2 else b",kl\xe9") for i, name in enumerate(names)))
    tokens = [os.fsdecode(b"job\xe8"), os.fsdecode(b"job\xe9")]
    with lcache.open(photos, cache=root, ext=("png",), labels=labels, job=tokens[0]) as job, lcache.open(photos, cache=root, ext=("png",), labels=labels, job=tokens[1]) as other:
        assert list(map(os.fsencode, job.classes)) == [b"kl\xe8", b"kl\xe9"] and job.names(range(job.samples)) == names
        assert list(job.labels()) == [1 - i % 2 for i in range(len(names))]
        job.get([0])
        other.get([0, 1])
        counts = {entry["id"]: entry["samples_delivered"] for entry in job.stats()["jobs"]}
        assert (job.pid, counts[tokens[0]], counts[tokens[1]]) == (other.pid, 1, 2)
    with lcache.open(photos, cache=root, ext=(os.fsdecode(b"b\xfcn"),), allow_empty=True) as job:
        assert job.names([0]) == [os.path.relpath(odd, photos)] and bytes(job.get([0]).samples[0]) == b"odd"
        socket = os.path.join(job.stats()["cache"]["dirs"][0], "lcache.sock")
        with lcache.open(photos, socket=socket, ext=(os.fsdecode(b".B\xfcN"),)) as same:
            assert same.pid == job.pid
        with pytest.raises(lcache.ArgumentError, match="ext b.xfcn, not b.xfdn") as e:
            lcache.open(photos, socket=socket, ext=(os.fsdecode(b"b\xfdn"),))
        assert str(e.value).encode()


def test_errors_can_be_written(photos, root):
    """An error has the sample's name as it is, and a text that UTF-8 can hold."""
    with lcache.open(photos, cache=root, memory="64MB") as job:
        index, name = next((i, name) for i, name in enumerate(job.names(range(job.samples))) if os.fsencode(name).startswith(b"caf\xe8/"))
        os.remove(os.path.join(photos, name))
        with pytest.raises(lcache.SampleError) as e:
            job.get([index])
    assert e.value.sample == name and isinstance(e.value, FileNotFoundError)
    assert "caf\\xe8/" in str(e.value) and str(e.value).encode()
    for source, said in ((os.path.join(photos, "none"), "photos\\xe9/none"), (os.path.join(photos, os.fsdecode(b"\xff")), "photos\\xe9/\\xff")):
        with pytest.raises(lcache.Error) as e:
            lcache.open(source, cache=root)
        assert said in str(e.value) and str(e.value).encode()
    with pytest.raises(FileNotFoundError, match="photos.xe9/zoo") as e:
        lt.ImageFolder(os.path.join(photos, "zoo"), cache=root)
    assert str(e.value).encode()
    with pytest.raises(lcache.Error, match="photos.xe9") as e:  # an error of the lcache program
        lcache.open(photos, cache=root, ext=("nothing",))
    assert str(e.value).encode() and str(e.value).count("photos") == 1
