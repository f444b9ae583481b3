"""The tensors and labels equal torchvision's and torch's, with each way to start workers."""

import os
import pickle

import pictures
import pytest
from embedded_servers import root  # noqa: F401

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)
torchvision = pytest.importorskip("torchvision", reason="torchvision is not installed")

import lcache.torch as lt  # noqa: E402

EPOCHS = 3
FORKED = pytest.mark.xdist_group("forked")  # the process that forked.py starts forks these workers, too


@pytest.fixture(scope="module")
def photos(source_dir):
    return pictures.make(os.path.join(source_dir(), "train"))


@pytest.fixture(scope="module")
def transform():
    return torchvision.transforms.ToTensor()


@pytest.fixture(scope="module")
def expected(photos, transform):
    """The epochs of torchvision and torch as (pictures, labels), without and with persistent workers."""
    theirs = torchvision.datasets.ImageFolder(photos, transform)

    def epochs(persistent):
        generator = torch.Generator().manual_seed(11)
        loader = torch.utils.data.DataLoader(theirs, batch_size=8, shuffle=True, generator=generator, num_workers=int(persistent), persistent_workers=persistent)
        return [list(loader) for _ in range(EPOCHS)]

    return {persistent: epochs(persistent) for persistent in (False, True)}


def same(got, want):
    assert len(got) == len(want)
    for (a, b), (x, y) in zip(got, want):
        assert torch.equal(a, x) and torch.equal(b, y)


def test_dataset(photos, root, transform):
    ours, theirs = lt.ImageFolder(photos, transform, cache=root), torchvision.datasets.ImageFolder(photos, transform)
    assert len(ours) == len(theirs)
    assert (ours.classes, ours.class_to_idx, ours.targets) == (theirs.classes, theirs.class_to_idx, theirs.targets)
    assert (ours.samples, ours.imgs) == (theirs.samples, theirs.imgs)
    for i in (0, 1, len(ours) - 1, -1):
        assert torch.equal(ours[i][0], theirs[i][0]) and ours[i][1] == theirs[i][1]
    with pytest.raises(IndexError):
        ours[len(ours)]
    assert len(pickle.dumps(lt.ImageFolder(photos, cache=root))) < 1280
    assert [label for _, label in ours] == theirs.targets


def socket_of(dataset):
    return os.path.join(dataset.job.stats()["cache"]["dirs"][0], "lcache.sock")


def test_shards_in_the_place_of_class_folders(root, tmp_path):
    """A folder of tar shards, and a folder with one, are not pictures: the errors name the source that reads the samples in them."""
    (tmp_path / "set" / "train").mkdir(parents=True)
    (tmp_path / "set" / "train" / "0.tar").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match=r"It has tar shards: use lcache\.torch\.Dataset\('tar:.*/set/train/\*\.tar'\) to read the samples in them"):
        lt.ImageFolder(tmp_path / "set" / "train", cache=root)
    with pytest.raises(FileNotFoundError, match=r'did you mean "tar:.*/set/\*/\*\.tar"\?'):
        lt.ImageFolder(tmp_path / "set", cache=root)
    assert not os.path.exists(root)


def test_without_class_folders(photos, root):
    """A folder one level too deep raises torchvision's error before a cache is made. flat=True and a flat server allow it. A Dataset is one sorted list."""
    folder = os.path.join(photos, "ant", "more")
    for make in (torchvision.datasets.ImageFolder, lambda path: lt.ImageFolder(path, cache=root)):
        with pytest.raises(FileNotFoundError, match=f"^Couldn't find any class folder in {folder}\\."):
            make(folder)
    assert not os.path.exists(root)
    count = len(os.listdir(folder))
    listed = lt.Dataset(folder, cache=root)
    assert (len(listed), listed.job.classes) == (count, [])
    with pytest.raises(FileNotFoundError, match=f"class folder in {folder}"):
        lt.ImageFolder(socket=socket_of(listed))
    ours = lt.ImageFolder(folder, cache=root, flat=True)
    assert (ours.targets, ours.classes, ours.class_to_idx) == ([0] * count, [], {})
    assert lt.ImageFolder(socket=socket_of(ours)).targets == ours.targets


def test_target_transform_and_decode(photos, root):
    ours = lt.ImageFolder(photos, len, lambda label: -label, decode=bytes, cache=root)
    for i, (path, label) in enumerate(ours.samples[:5]):
        with open(path, "rb") as f:
            assert ours[i] == (len(f.read()), -label)


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("method, workers", [(None, 0), ("fork", 2), pytest.param("forkserver", 1, marks=FORKED), ("spawn", 1)])
def test_same_as_torchvision(photos, root, transform, expected, method, workers, persistent):
    if persistent and not workers:
        pytest.skip("no workers, none to persist")
    if method == "forkserver":
        torch.multiprocessing.get_context(method).set_forkserver_preload(["torch", "lcache.torch", "torchvision"])
    ours = lt.ImageFolder(photos, transform, cache=root)
    loader = lt.DataLoader(
        ours, batch_size=8, shuffle=True, seed=11, num_workers=workers, multiprocessing_context=method, persistent_workers=persistent
    )
    for epoch in range(EPOCHS):
        same(list(loader), expected[persistent][epoch])
        assert loader.batch_sampler.order_ahead.exact
    status = ours.job.stats()["jobs"][0]
    assert status["divergences"] == 0 and len(status["epochs_done"]) == EPOCHS
    # The log has all samples, laid out for the pushed orders, unless epochs of milliseconds were faster.
    for _ in range(20):
        if not ours.job.stats()["jobs"][0]["epochs_done"][-1]["misses"]:
            break
        list(loader)
    else:
        pytest.fail("every epoch has misses")


def test_plain_torch_loader(photos, root, transform, expected):
    """With torch's own loader over lcache's dataset, samples are right, and the source is read once."""
    ours = lt.ImageFolder(photos, transform, cache=root)
    loader = torch.utils.data.DataLoader(ours, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(11), num_workers=2)
    same(list(loader), expected[False][0])
    list(loader)
    status = ours.job.stats()["jobs"][0]
    assert (status["source_reads"], status["hits"]) == (len(ours), len(ours))


def test_default_seed(photos, root, transform):
    """shuffle=True without a seed draws one from torch's default generator, once."""
    ours = lt.ImageFolder(photos, transform, cache=root)
    orders = []
    for _ in range(2):
        torch.manual_seed(5)
        loader = lt.DataLoader(ours, batch_size=8, shuffle=True)
        orders.append([labels.tolist() for _ in range(2) for _, labels in loader])
    assert orders[0] == orders[1]
    assert orders[0][: len(orders[0]) // 2] != orders[0][len(orders[0]) // 2 :]


def test_memory_for_a_likely_batch(photos, root):
    """The loader is made after its dataset. If memory allows, the server has room for a batch of 256."""
    assert lt.ImageFolder(photos, cache=root + "1").job.batch_size == 256
    assert lt.ImageFolder(photos, cache=root + "2", batch_size=7).job.batch_size == 7
