"""lcache follows links as torchvision does: samples, labels and bytes are the same in each layout."""

import os

import pytest
from embedded_servers import root  # noqa: F401

import lcache

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)
torchvision = pytest.importorskip("torchvision", reason="torchvision is not installed")

import lcache.torch as lt  # noqa: E402


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def link(path, target):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def class_folders(at):
    """Class folders on another disk, and a linked folder in one."""
    for name in ("cat/2.jpg", "cat/deep/1.jpg", "dog/3.png", "dog/.hidden/4.jpg", "dog/.5.jpg", "more/6.jpg"):
        write(at / "disk" / name, name)
    write(at / "train/bird/1.jpg", "bird")
    link(at / "train/zebra", at / "disk/cat")
    link(at / "train/ant", at / "disk/dog")
    link(at / "train/bird/more", at / "disk/more")
    return at / "train"


def hub(at):
    """A snapshot of the Hugging Face hub: every file is a link to a blob. There are also files outside the dataset."""
    for i in range(20):
        write(at / f"datasets--x--y/blobs/{i:040x}", f"blob {i}")
        link(at / f"datasets--x--y/snapshots/abc/train/{'cat' if i % 3 else 'dog'}/{19 - i}.jpg", f"../../../../blobs/{i:040x}")
    link(at / "datasets--x--y/snapshots/abc/train/README.md", f"../../../blobs/{0:040x}")
    return at / "datasets--x--y/snapshots/abc/train"


def annex(at):
    """git-annex and DVC: links to files in a folder of the repository that are named by their contents. Several links lead to one file."""
    for i in range(6):
        write(at / f"repo/.git/annex/objects/a{i}/k{i}/k{i}", f"key {i}")
    for i in range(12):
        link(at / f"repo/train/{'ab'[i % 2]}/s/{i}.jpg", f"../../../.git/annex/objects/a{i // 2}/k{i // 2}/k{i // 2}")
    return at / "repo/train"


def diamond(at):
    """One folder with three paths, a link to a link, and a link to a file in the same folder."""
    write(at / "train/a/d/1.jpg", "one")
    write(at / "train/a/d-x/2.jpg", "two")
    link(at / "train/a/e", "d")
    link(at / "train/b", "a/e")
    link(at / "train/a/3.jpg", "d/1.jpg")
    return at / "train"


@pytest.mark.parametrize("make", [class_folders, hub, annex, diamond])
def test_as_torchvision(make, tmp_path, root):
    source = make(tmp_path / "data")

    def read(path):
        with open(path, "rb") as f:
            return f.read()

    theirs = torchvision.datasets.ImageFolder(source, loader=read)
    ours = lt.ImageFolder(source, decode=bytes, cache=root)
    assert (ours.classes, ours.class_to_idx, ours.targets, ours.samples) == (theirs.classes, theirs.class_to_idx, theirs.targets, theirs.samples)
    assert [ours[i] for i in range(len(ours))] == [theirs[i] for i in range(len(theirs))]


def test_follow_links(tmp_path, root):
    source = hub(tmp_path / "data")
    with pytest.raises(lcache.Error, match="leaves the source .*, or leave out follow_links=False"):
        lcache.open(source, root, ext=[".jpg"], follow_links=False)
    with lcache.open(source, root, ext=[".jpg"], follow_links=True) as job:
        assert job.samples == 20
    link(source / "cat/gone.jpg", "nowhere")
    link(source / "dog/gone.jpg", "nowhere")
    with pytest.raises(lcache.Error, match='2 links lead to nothing: "cat/gone.jpg", "dog/gone.jpg": bring back their targets'):
        lcache.open(source, root + "/2", ext=[".jpg"])


def test_no_cache_through_a_link(tmp_path, root):
    source = diamond(tmp_path / "data")
    with lcache.open(source, root) as job:
        assert job.samples == 5
    (name,) = os.listdir(root)
    os.mkdir(root + "/2")
    os.symlink(os.path.join(root, name), os.path.join(root + "/2", name))
    with pytest.raises(lcache.Error, match=f"{name}: it is a link"):
        lcache.open(source, root + "/2")
    os.symlink(root, root + "/3")  # a parent folder of a cache may be a link
    with lcache.open(source, root + "/3") as job:
        assert job.samples == 5
