"""Batches that are made as a whole: one tensor of samples of one size, and decode_batch on views of shared memory."""

import os
import pathlib
import pickle
import platform
import statistics
import struct
import subprocess
import sys
import warnings

import pictures
import pytest
from embedded_servers import folder, root  # noqa: F401

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)
numpy = pytest.importorskip("numpy", reason="numpy is not installed")

from torch.utils import data  # noqa: E402

import lcache  # noqa: E402
import lcache.torch as lt  # noqa: E402

N, WIDTH, SIZE = 200, 6, 16


@pytest.fixture(scope="module")
def tokens(source_dir):
    """Samples of six int32: 100 times the index, and more."""
    where = pathlib.Path(source_dir(), "train")
    for i in range(N):
        path = where / f"c{i // 50}" / f"{i:04d}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(struct.pack("<6i", *row(i)))
    return str(where)


def row(i):
    return [100 * i + k for k in range(WIDTH)]


def ours(tokens, root, **more):
    return lt.Dataset(tokens, cache=root, **{"decode": "array", "dtype": "int32", "shape": (2, 3), **more})


def order(epochs=1):
    generator = torch.Generator().manual_seed(4)
    loader = data.DataLoader(range(N), SIZE, shuffle=True, generator=generator)
    return [[batch.tolist() for batch in loader] for _ in range(epochs)]


@pytest.mark.parametrize("method, workers", [(None, 0), ("fork", 2), ("spawn", 1)])
@pytest.mark.parametrize("loader", [lt.DataLoader, data.DataLoader])
def test_one_tensor_a_batch(tokens, root, loader, method, workers):
    batches = loader(ours(tokens, root), SIZE, shuffle=True, generator=torch.Generator().manual_seed(4), num_workers=workers, multiprocessing_context=method)
    got = list(batches)
    assert all(batch.dtype == torch.int32 and type(batch) is torch.Tensor for batch in got)
    assert [batch.reshape(-1, WIDTH).tolist() for batch in got] == [[row(i) for i in batch] for batch in order()[0]]
    if loader is lt.DataLoader:
        assert batches.batch_sampler.order_ahead.exact


def test_one_by_one_and_through_wrappers(tokens, root):
    dataset = ours(tokens, root)
    sample = dataset[7]
    assert type(sample) is torch.Tensor and sample.shape == (2, 3) and sample.flatten().tolist() == row(7)
    assert type(dataset[-1] + 1) is torch.Tensor and dataset[-1].flatten().tolist() == row(N - 1)
    with pytest.raises(IndexError):
        dataset[N]
    subset = data.Subset(dataset, [5, 3, 8])
    assert [batch.reshape(-1, WIDTH).tolist() for batch in lt.DataLoader(subset, 2)] == [[row(5), row(3)], [row(8)]]
    both = data.ConcatDataset([dataset, subset])
    got = [i for batch in lt.DataLoader(both, 20) for i in (batch[:, 0, 0] // 100).tolist()]
    assert got == [*range(N), 5, 3, 8]
    assert pickle.loads(pickle.dumps(dataset))[3].flatten().tolist() == row(3) and len(pickle.dumps(dataset)) < 1500


def test_other_collate_functions(tokens, root):
    """For other collate functions, a ready batch is a sequence of samples."""
    def check(batch):
        assert len(batch) == SIZE and batch[-1].flatten().tolist() == row(SIZE - 1) and [s.shape for s in batch[:2]] == [(2, 3)] * 2
        with pytest.raises(IndexError):
            batch[SIZE]
        return torch.stack(list(batch)), data.default_collate(list(batch)), data.default_collate(batch)

    a, b, c = next(iter(data.DataLoader(ours(tokens, root), SIZE, collate_fn=check)))
    assert torch.equal(a, b) and torch.equal(b, c) and a.shape == (SIZE, 2, 3) and type(b) is torch.Tensor


def test_sample_of_another_size(tokens, root, tmp_path):
    other = tmp_path / "other"
    os.makedirs(other)
    for i in range(3):
        (other / f"{i}.bin").write_bytes(b"x" * (24 - (i == 1)))
    with pytest.raises(lcache.SampleError, match=r"sample 1, '1.bin', has 23 bytes, and an array of int32 \(2, 3\) has 24"):
        list(lt.DataLoader(ours(str(other), root), 3))


def test_sequences_of_any_length(root, tmp_path):
    """Without shape= each sample is a tensor of its own length."""
    folder = tmp_path / "sequences"
    folder.mkdir()
    for i in range(6):
        (folder / f"{i}.bin").write_bytes(bytes(range(i)) * 4)
    dataset = lt.Dataset(str(folder), decode="array", dtype="uint16", cache=root)
    want = [torch.frombuffer(bytearray(bytes(range(i)) * 4), dtype=torch.uint16) if i else torch.empty(0, dtype=torch.uint16) for i in range(6)]
    (batch,) = lt.DataLoader(dataset, 6, collate_fn=list)
    assert len(batch) == 6 and all(torch.equal(a, b) and a.dtype == torch.uint16 for a, b in zip(batch, want))
    batch[3][0] = 7  # the tensors are copies, so that a program may change them
    assert torch.equal(dataset[3], want[3])
    odd = tmp_path / "odd"
    odd.mkdir()
    (odd / "7.bin").write_bytes(b"odd")
    with pytest.raises(lcache.SampleError, match=r"'7.bin' has 3 bytes, which is not a multiple of 2, the size of uint16"):
        lt.Dataset(str(odd), decode="array", dtype="uint16", cache=root)[0]


@pytest.mark.parametrize("more, why", [
    ({"dtype": None}, "needs dtype="),
    ({"dtype": "nothing"}, "do not describe an array"),
    ({"dtype": "S4"}, "torch has no dtype"),
    ({"decode": None}, 'need decode="array"'),
    ({"decode": "arrays", "dtype": None, "shape": None}, "is not a function"),
    ({"decode_batch": len}, "give only one"),
    ({"decode": None, "dtype": None, "shape": None, "decode_batch": "no"}, "is not a function"),
])
def test_arguments_that_contradict(more, why):
    """The arguments are checked before the source is listed."""
    with pytest.raises(lcache.ArgumentError, match=why):
        ours("/nowhere", "/nowhere", **more)


# decode_batch


def columns_of(views, columns):
    assert len(views) == len(columns) == len(columns.indices) == len(columns.labels) == len(columns.lengths)
    return [(bytes(view), index, label, length) for view, index, label, length in zip(views, columns.indices, columns.labels, columns.lengths)]


@pytest.mark.parametrize("workers", [0, 2])
def test_list_of_items(folder, root, workers):
    dataset = lt.Dataset(folder.root, cache=root, decode_batch=columns_of)
    loader = lt.DataLoader(dataset, 16, shuffle=True, seed=1, num_workers=workers, collate_fn=list)
    got = [item for batch in loader for item in batch]
    assert sorted(index for _, index, _, _ in got) == list(range(240))
    assert all((raw, label, length) == (folder.contents[i], folder.labels[i], len(folder.contents[i])) for raw, i, label, length in got)
    assert dataset[3] == (folder.contents[3], 3, folder.labels[3], len(folder.contents[3]))


def as_dict(views, columns):
    """A batch as the collators of Hugging Face datasets return it."""
    return {
        "input_ids": torch.stack([torch.frombuffer(bytearray(view), dtype=torch.int32) for view in views]),
        "labels": torch.tensor(columns.labels.tolist()), "names": columns.names,
    }


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("loader", [lt.DataLoader, data.DataLoader])
def test_dict_batch(tokens, root, loader, workers):
    dataset = lt.Dataset(tokens, cache=root, decode_batch=as_dict)
    got = list(loader(dataset, SIZE, num_workers=workers))
    assert [i for batch in got for i in (batch["input_ids"][:, 0] // 100).tolist()] == list(range(N))
    assert [i for batch in got for i in batch["labels"].tolist()] == [i // 50 for i in range(N)]
    assert got[0]["names"][0].endswith("0000.bin") and type(got[0]) is dict
    one = dataset[60]
    assert one["input_ids"].tolist() == row(60) and one["labels"] == 1


def test_tuple_and_other_batches(tokens, root):
    def two(views, columns):
        return torch.tensor(columns.indices.tolist()), torch.zeros(len(views), 3)

    indices, zeros = next(iter(lt.DataLoader(lt.Dataset(tokens, cache=root, decode_batch=two), SIZE)))
    assert indices.tolist() == list(range(SIZE)) and zeros.shape == (SIZE, 3)
    assert [n.shape for n in lt.Dataset(tokens, cache=root, decode_batch=two)[3]] == [(), (3,)]
    (got,) = {type(batch) for batch in lt.DataLoader(lt.Dataset(tokens, cache=root, decode_batch=lambda views, _: numpy.arange(len(views))), SIZE)}
    assert got is numpy.ndarray


def is_shared(data):
    """Whether a view or a tensor is in a server's shared memory: a read-only mapping of a memfd."""
    begin = data.data_ptr() if isinstance(data, torch.Tensor) else numpy.frombuffer(data, numpy.uint8).ctypes.data
    with open("/proc/self/maps") as maps:
        for line in maps:
            bounds, rights, _, _, _, *name = line.split(maxsplit=5)
            low, high = (int(bound, 16) for bound in bounds.split("-"))
            if low <= begin and begin + data.nbytes <= high:
                return rights == "r--s" and name[0].startswith("/memfd:")
    return False


def test_views_stay(tokens, root):
    """No copy is made. The bytes stay as long as a view of one sample is left, even after the batch and the dataset are gone."""
    held, shared = [], []

    def keep(views, columns):
        held.append(views[3])
        shared.append(all(map(is_shared, views)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the memory is not writable
            return torch.stack([torch.frombuffer(view, dtype=torch.int32) for view in views[:2]])

    dataset = lt.Dataset(tokens, cache=root, decode_batch=keep)
    list(lt.DataLoader(dataset, SIZE))
    assert all(view.readonly for view in held)
    assert shared == [True] * -(-N // SIZE) and not is_shared(memoryview(bytes(held[0])))
    dataset.job.close()
    del dataset
    assert all(map(is_shared, held))
    assert [struct.unpack("<6i", view) for view in held] == [tuple(row(i)) for i in range(3, N, SIZE)]


def wrong(views, columns):
    return list(views)[1:]


def broken(views, columns):
    raise ValueError("no such codec")


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("decode_batch, why", [(wrong, "returned 15 items for 16 samples"), (broken, "ValueError: no such codec")])
def test_errors(tokens, root, decode_batch, why, workers):
    with pytest.raises(lcache.DecodeError, match=why) as raised:
        list(lt.DataLoader(lt.Dataset(tokens, cache=root, decode_batch=decode_batch), SIZE, num_workers=workers))
    assert "samples 0, 1, 2, 3, 4, 5, 6, 7, …" in str(raised.value) and tokens in str(raised.value)


def test_more_than_the_server_lends(tmp_path, root):
    """A batch that arrives in pieces is still decoded as a whole."""
    where = tmp_path / "large"
    os.makedirs(where)
    for i in range(40):
        (where / f"{i:02d}.bin").write_bytes(bytes([i]) * 1_000_000)
    calls = []

    def firsts(views, columns):
        calls.append(len(views))
        return torch.tensor([view[0] for view in views])

    dataset = lt.Dataset(where, cache=root, memory="96MB", batch_size=4, decode_batch=firsts)
    got = list(data.DataLoader(dataset, 40))
    assert calls == [40] and got[0].tolist() == list(range(40))


# In a new process, because another test may have changed malloc's limits.
FAULTS = """
import resource, sys, torch
import lcache.torch as lt

dataset = lt.Dataset(sys.argv[1], cache=sys.argv[2], decode=eval(sys.argv[3]))
faults = []
for _ in range(3):
    for batch in lt.DataLoader(dataset, 256, collate_fn=len):
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print(sorted(b - a for a, b in zip(faults, faults[1:]))[5])
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's malloc is told to keep freed memory")
@pytest.mark.parametrize("decode", ["None", "lambda data, sample: len(data)"])
def test_memory_of_the_last_batch_is_used_again(tmp_path, decode):
    """Each batch has 4 MB, 1,024 pages of 4 KiB. Without keep_freed at least half of them were faulted in again for each batch."""
    where = tmp_path / "train"
    os.makedirs(where)
    for i in range(1024):
        (where / f"{i:04d}.bin").write_bytes(os.urandom(16384))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", FAULTS, str(where), str(tmp_path / "cache"), decode], capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 250


def test_two_objects_a_sample(folder, root):
    """Without decode a sample needs only its bytes and a tuple."""
    dataset, indices = lt.Dataset(folder.root, cache=root), list(range(240))
    kept = [dataset.__getitems__(indices) for _ in range(8)]  # until the free memory of earlier objects is reused
    made = []
    for _ in range(5):  # the interpreter sometimes allocates for other reasons
        before = sys.getallocatedblocks()
        kept.append(dataset.__getitems__(indices))
        made.append(sys.getallocatedblocks() - before)
    assert 1.9 * 240 < statistics.median(made) < 2.5 * 240, made


@pytest.fixture(scope="module")
def photos(source_dir):
    return pictures.make(os.path.join(source_dir(), "train"))


def test_torchcodec(photos, root):
    """On the CPU, from views of shared memory without a copy."""
    decoders = pytest.importorskip("torchcodec.decoders", reason="torchcodec is not installed")
    torchvision = pytest.importorskip("torchvision", reason="torchvision is not installed")
    shared = []

    def decode(views, columns):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the memory is not writable, and the test does not write
            encoded = [torch.frombuffer(view, dtype=torch.uint8) for view in views]
        shared.extend(map(is_shared, encoded))
        images = torch.stack(list(map(decoders.decode_png, encoded)))
        return images, torch.tensor(columns.labels.tolist())

    theirs = torchvision.datasets.ImageFolder(photos, torchvision.transforms.PILToTensor())
    loader = lt.DataLoader(lt.Dataset(photos, cache=root, ext=".png", decode_batch=decode), 8)
    for (images, labels), (want, targets) in zip(loader, data.DataLoader(theirs, 8)):
        assert torch.equal(images, want) and torch.equal(labels, targets)
    assert shared == [True] * len(theirs)


def test_spdl(folder, root):
    """lcache is the first stage of a pipeline whose threads hold views."""
    pipeline = pytest.importorskip("spdl.pipeline", reason="spdl is not installed")
    shared = []
    with lcache.open(folder.root, root, recipe="torch.distributed_sampler", seed=3, epochs=1, batch_size=16) as job:
        def decode(batch):
            shared.extend(map(is_shared, batch))
            return [(index, bytes(view)) for index, view in zip(batch.indices, batch)]

        stages = pipeline.PipelineBuilder().add_source(job.epoch(0)).pipe(decode, concurrency=2, output_order="input").add_sink(3).build(num_threads=2)
        with stages.auto_stop():
            got = [item for batch in stages.get_iterator(timeout=30) for item in batch]
    assert sorted(index for index, _ in got) == list(range(240))
    assert all(raw == folder.contents[index] for index, raw in got)
    assert shared == [True] * 240
