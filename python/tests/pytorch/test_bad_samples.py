"""check() finds the samples that can't be decoded, and bad= leaves them out, as if their files did not exist."""

import gc
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest
from embedded_servers import folder, root  # noqa: F401

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)
torchvision = pytest.importorskip("torchvision", reason="torchvision is not installed")

import pictures  # noqa: E402
from torch.utils import data  # noqa: E402

import lcache  # noqa: E402
import lcache.torch as lt  # noqa: E402
from lcache._client import checked  # noqa: E402
from lcache.torch import checking  # noqa: E402

DAMAGED = (3, 20, 41)


class Odd(Exception):
    """An exception that pickle can't copy."""

    def __init__(self, one, two):
        super().__init__(f"{one} {two}")


def decode(data, sample):
    if b"BAD" in data[:3]:
        raise KeyError("no such thing")
    return sample.name


@pytest.fixture(autouse=True)
def cache_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


@pytest.fixture
def files(tmp_path):
    """Pictures, of which three are damaged. Returns (folder, names of the damaged ones)."""
    source = pictures.make(str(tmp_path / "pictures"))
    samples = torchvision.datasets.ImageFolder(source).samples
    bad = [samples[i][0] for i in DAMAGED]
    for path in bad:
        with open(path, "r+b") as f:
            f.write(b"BAD")
    return source, [os.path.relpath(path, source) for path in bad]


def without(source, names, tmp_path):
    """A copy of a folder without some files."""
    copy = shutil.copytree(source, str(tmp_path / "without"))
    for name in names:
        os.unlink(os.path.join(copy, name))
    return copy


def write(tmp_path, names):
    path = tmp_path / "bad.txt"
    path.write_text("".join(f"{name}\n" for name in names))
    return path


@pytest.mark.parametrize("workers", [0, 2])
def test_check(files, root, workers, capfd):
    source, bad = files
    before = torch.random.get_rng_state()
    dataset = lt.ImageFolder(source, torchvision.transforms.ToTensor(), cache=root)
    capfd.readouterr()
    found = lt.check(dataset, num_workers=workers)
    assert torch.equal(before, torch.random.get_rng_state()), "a check draws nothing from torch's generator"
    assert [(index, name) for index, name, _ in found] == list(zip(DAMAGED, bad))
    for index, name, error in found:
        assert isinstance(error, lcache.DecodeError) and isinstance(error, OSError) and error.__traceback__ is None
        assert (error.index, error.sample, error.source) == (index, name, source) and "UnidentifiedImageError" in error.cause
    assert capfd.readouterr() == ("", ""), "quiet without a terminal"
    dropped = lt.ImageFolder(source, cache=root, bad="drop")
    assert len(dropped) == 47 and "of 47 samples without 3 bad ones" in repr(dropped)
    assert lt.check(dropped, num_workers=workers) == []
    assert len(lt.ImageFolder(source, cache=root, bad="drop")) == 47, "a check of the rest keeps the list"


@pytest.mark.parametrize("workers", [0, 2])
def test_check_of_other_decoders(folder, root, workers):
    """A decoder of whole batches, a subclass's own access, an exception that can't be copied, and an IndexError: each names the sample."""

    def at_once(views, columns):
        if 7 in columns.indices:
            raise Odd(1, 2)
        return torch.zeros(len(views))

    ((index, name, error),) = lt.check(lt.Dataset(folder.root, decode_batch=at_once, cache=root), num_workers=workers)
    names = [os.path.relpath(path, folder.root) for path, _ in folder.files]
    assert (index, name) == (7, names[7]) and "Odd: 1 2" in str(error)

    class Own(lt.Dataset):
        def __getitem__(self, index):
            if index == 100:
                raise Odd(3, 4)
            if index == 101:
                raise IndexError("mine")
            return super().__getitem__(index)

    found = lt.check(Own(folder.root, cache=root), num_workers=workers)
    assert [(index, name) for index, name, _ in found] == [(100, names[100]), (101, names[101])]
    assert "Odd: 3 4" in str(found[0].exception) and isinstance(found[1].exception, IndexError)
    assert lt.check(data.Subset(Own(folder.root, cache=root), []).dataset, num_workers=0)
    with pytest.raises(lcache.Error, match="not Subset: give the dataset"):
        lt.check(data.Subset(Own(folder.root, cache=root), [1]))


def test_unreadable_samples_and_lost_servers(files, root):
    """A file that is gone is bad, too. A server that is gone is no sample's fault."""
    source, bad = files
    dataset = lt.ImageFolder(source, cache=root)
    os.unlink(os.path.join(source, dataset.job.names([10])[0]))
    found = lt.check(dataset, num_workers=0)
    assert [b.index for b in found] == sorted((*DAMAGED, 10)) and isinstance(found[1].exception, FileNotFoundError)
    dataset.job.close()
    with pytest.raises(lcache.Error, match="closed"):
        lt.check(dataset, num_workers=0)


def test_too_many(folder, root, caplog):
    """If most samples fail, the reason is elsewhere: the list is returned, and not kept."""
    dataset = lt.Dataset(folder.root, lambda *_: 1 / 0, cache=root)
    assert len(lt.check(dataset, num_workers=0)) == len(folder)
    assert "the decoder or the source seems to be at fault" in caplog.text
    with pytest.raises(lcache.Error, match='bad="drop": .* was not checked'):
        lt.Dataset(folder.root, cache=root, bad="drop")


def test_worker_that_dies(folder, root):
    dataset = lt.Dataset(folder.root, lambda _, sample: os.kill(os.getpid(), signal.SIGKILL) if sample.index == 150 else 0, cache=root)
    with pytest.raises(lcache.Error, match=r"on one of the samples (\d+) to (\d+)") as raised:
        lt.check(dataset, num_workers=1)
    first, last = map(int, str(raised.value).partition("samples ")[2].partition(":")[0].split(" to "))
    assert first <= 150 <= last
    assert not any(isinstance(found, data.dataloader._MultiProcessingDataLoaderIter) for found in gc.get_objects()), "later workers would inherit it"


PROGRAM = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # programs that a shell starts in the background ignore SIGINT
import lcache.torch as lt
def decode(data, sample):
    print("decoded", flush=True)
    time.sleep(600)
try:
    lt.check(lt.Dataset(sys.argv[1], decode, cache=sys.argv[2]), num_workers=2)
except KeyboardInterrupt as e:
    import multiprocessing
    print("interrupted", len(multiprocessing.active_children()), e.__traceback__ is not None, flush=True)
"""


def test_interrupt(folder, root):
    """Ctrl-C ends the workers, leaves one KeyboardInterrupt and keeps the list of the check before."""
    before = lt.check(lt.Dataset(folder.root, lambda _, sample: 1 / (sample.index != 5), cache=root), num_workers=0)
    assert len(before) == 1
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, folder.root, root], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout.readline() == "decoded\n"
    os.killpg(process.pid, signal.SIGINT)
    out, errors = process.communicate(timeout=180)
    assert process.returncode == 0 and "interrupted 0 True" in out, errors
    assert "Traceback" not in errors
    assert len(lt.Dataset(folder.root, cache=root, bad="drop")) == len(folder) - 1


@pytest.mark.parametrize("workers", [0, 2])
def test_as_if_not_there(files, root, tmp_path, workers):
    """Length, samples, targets, classes, images and torch's order are those of torchvision over a folder without the files."""
    source, bad = files
    copy = without(source, bad, tmp_path)
    transform = torchvision.transforms.ToTensor()
    theirs = torchvision.datasets.ImageFolder(copy, transform)
    for listed in (bad, [os.path.join(source, name) for name in bad], [*bad, ""]):
        ours = lt.ImageFolder(source, transform, cache=root, bad=write(tmp_path, listed))
        assert (len(ours), ours.classes, ours.class_to_idx, ours.targets) == (len(theirs), theirs.classes, theirs.class_to_idx, theirs.targets)
        assert [os.path.relpath(p, source) for p, _ in ours.samples] == [os.path.relpath(p, copy) for p, _ in theirs.samples]
    loaders = [kind(ds, 8, shuffle=True, num_workers=workers, generator=torch.Generator().manual_seed(3)) for kind, ds in ((data.DataLoader, theirs), (lt.DataLoader, ours))]
    for _ in range(2):
        for (a, b), (c, d) in zip(*loaders, strict=True):
            assert torch.equal(a, c) and torch.equal(b, d)
    entry = ours.job.stats()["jobs"][0]
    assert entry["divergences"] == 0 and loaders[1].batch_sampler.order_ahead.exact
    for rank in range(2):
        samplers = [data.DistributedSampler(ds, 2, rank, seed=4) for ds in (theirs, ours)]
        assert list(samplers[0]) == list(samplers[1])
        assert [y.tolist() for _, y in lt.DataLoader(ours, 8, sampler=samplers[1])] == [y.tolist() for _, y in data.DataLoader(theirs, 8, sampler=samplers[0])]


def test_with_classes_and_filters(files, root, tmp_path):
    """A class whose samples are all bad keeps its label. is_valid_file, find_classes and make_dataset choose first."""
    source, bad = files
    whole = lt.ImageFolder(source, cache=root)
    ants = [os.path.relpath(path, source) for path, label in whole.samples if label == 0]
    ours = lt.ImageFolder(source, cache=root, bad=write(tmp_path, ants))
    assert ours.classes == ["ant", "bee", "cat"] and set(ours.targets) == {1, 2} and len(ours) == len(whole) - len(ants)
    bees = lt.ImageFolder(source, cache=root, is_valid_file=lambda path: "/cat/" not in path and path.lower().endswith("png"), allow_empty=True, bad=write(tmp_path, ants))
    assert set(bees.targets) == {1}

    class Own(lt.ImageFolder):
        def find_classes(self, directory):
            return ["bee", "ant"], {"bee": 10, "ant": 11}

    class Made(lt.ImageFolder):
        @staticmethod
        def make_dataset(directory, class_to_idx, extensions=None, is_valid_file=None, allow_empty=False):
            return [(path, (label + 1) * 5) for path, label in torchvision.datasets.ImageFolder.make_dataset(directory, class_to_idx, extensions)][::-1]

    for kind in (Own, Made):
        full, some = kind(source, cache=root), kind(source, cache=root, bad=write(tmp_path, bad))
        want = [(path, label) for path, label in full.samples if os.path.relpath(path, source) not in bad]
        assert some.samples == want and len(some) == len(want) < len(full)
        assert [some[i][1] for i in range(len(some))] == [label for _, label in want]


def test_lists(files, root, tmp_path, caplog, monkeypatch):
    source, bad = files
    assert len(lt.ImageFolder(source, cache=root, bad=write(tmp_path, []))) == 50
    assert len(lt.ImageFolder(source, cache=root, bad=write(tmp_path, [*bad, "ant/none.png", "ant/other.png"]))) == 47
    assert "2 of 5 names are not among the samples of" in caplog.text and "'ant/none.png'" in caplog.text and "Names are paths" not in caplog.text
    caplog.clear()
    assert len(lt.ImageFolder(source, cache=root, bad=write(tmp_path, ["none.png"]))) == 50
    assert caplog.text.count("1 of 1 names are not") == 1 and "Names are paths below the source" in caplog.text
    whole = lt.ImageFolder(source, cache=root)
    with pytest.raises(lcache.ArgumentError, match="lists all 50 samples of .*: nothing is left"):
        lt.ImageFolder(source, cache=root, bad=write(tmp_path, [path for path, _ in whole.samples]))
    with pytest.raises(FileNotFoundError, match="read the names of bad samples in .*/gone.txt"):
        lt.ImageFolder(source, cache=root, bad=tmp_path / "gone.txt")
    with pytest.raises(lcache.ArgumentError, match="give the path of a file"):
        lt.ImageFolder(source, cache=root, bad=["a"])
    with pytest.raises(lcache.ArgumentError, match="was not checked"):
        lt.ImageFolder(source, cache=root, bad="drop")
    lt.check(whole, num_workers=0)
    path = checked.path_of(source)
    assert path.startswith(os.environ["XDG_CACHE_HOME"]) and os.stat(path).st_mode & 0o777 == 0o600
    kept = open(path).read()
    for text in ("{", "[]", "null", '{"source": "/other", "bad": []}', json.dumps({"source": source, "bad": [1]}), kept.replace('"bad": [', '"bad": [3, ')):
        with open(path, "w") as f:
            f.write(text)
        with pytest.raises(lcache.Error, match="it is damaged; remove it"):
            lt.ImageFolder(source, cache=root, bad="drop")
    lt.check(whole, num_workers=0)
    document = json.load(open(path))
    with open(path, "w") as f:
        json.dump({**document, "fingerprint": "0" * 8}, f)
    caplog.clear()
    assert len(lt.ImageFolder(source, cache=root, bad="drop")) == 47 and "has changed since the last check" in caplog.text
    monkeypatch.setattr(checked, "_MOST", 10)
    with pytest.raises(lcache.Error, match="too much for a list"):
        lt.ImageFolder(source, cache=root, bad="drop")
    os.chmod(path, 0o666)
    with pytest.raises(lcache.Error, match="can be written by other users"):
        lt.ImageFolder(source, cache=root, bad="drop")


def test_wrong_lists(files, root, tmp_path, caplog):
    """Each wrong value of bad= is one clear error at once, and a name as `find .` prints it is a name."""
    source, bad = files
    os.mkfifo(tmp_path / "fifo")
    for value, text in ((tmp_path / "fifo", "not a regular file"), ("/dev/zero", "not a regular file"), (tmp_path, "not a regular file"), ("a\0b", "zero byte")):
        with pytest.raises(lcache.ArgumentError, match=text):
            lt.ImageFolder(source, cache=root, bad=value)
    for value in ("", False, torch.zeros(2), [b"a"]):
        with pytest.raises(lcache.ArgumentError, match="give the path of a file"):
            lt.ImageFolder(source, cache=root, bad=value)
    (tmp_path / "wrong").write_bytes(b"x" * 100_000)
    assert len(lt.ImageFolder(source, cache=root, bad=tmp_path / "wrong")) == 50
    assert "1 of 1 names are not" in caplog.text and len(caplog.text) < 2_000
    found = lt.ImageFolder(source, cache=root, bad=write(tmp_path, [f"./{bad[0]}", bad[0]]))
    assert len(found) == 49 and "of 49 samples without 1 bad one," in repr(found)
    for workers in (-1, 1.5, "2"):
        with pytest.raises(lcache.ArgumentError, match="give a whole number of at least 0"):
            lt.check(found, num_workers=workers)


def test_resume(files, root, tmp_path, caplog):
    """The state has the digest of the list, and a loader with another list refuses it."""
    source, bad = files

    def loader(names, kind=lt.DataLoader):
        made = lt.ImageFolder(source, torchvision.transforms.ToTensor(), cache=root, bad=write(tmp_path, names) if names is not None else None)
        return kind(made, 8, shuffle=True, generator=torch.Generator().manual_seed(5))

    caplog.set_level("INFO", "lcache")
    first = loader(bad)
    batches = [y.tolist() for _, y in first]
    assert "3 bad samples left out" in caplog.text and first.metrics()["lcache/bad_samples"] == 3
    again = loader([*bad[::-1], "unknown"])
    loop = iter(again)
    assert [next(loop)[1].tolist() for _ in range(2)] == batches[:2]
    state = json.loads(json.dumps(again.state_dict()))
    assert len(state["bad"]) == 64
    resumed = loader(bad)
    resumed.load_state_dict(state)
    assert [y.tolist() for _, y in resumed] == batches[2:]
    for names in (None, bad[:2], []):
        with pytest.raises(lcache.Error, match=r"was saved with a bad= list with digest \w{8}, and this loader has .*: give the dataset the bad="):
            loader(names).load_state_dict(state)
    plain = loader(None)
    assert "bad" not in plain.state_dict()
    with pytest.raises(lcache.Error, match=r"was saved with no bad= list, and this loader has a bad= list with digest"):
        loader(bad).load_state_dict(plain.state_dict())
    empty = loader([])
    empty.load_state_dict(plain.state_dict())


def test_resume_of_torchdata(files, root, tmp_path):
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    source, bad = files

    def loader(names, seeded):
        ds = lt.ImageFolder(source, torchvision.transforms.ToTensor(), cache=root, bad=write(tmp_path, names))
        return lt.watch(stateful.StatefulDataLoader(ds, 8, shuffle=True, generator=torch.Generator().manual_seed(5) if seeded else None))

    for seeded in (True, False):
        first = loader(bad, seeded)
        loop = iter(first)
        next(loop)
        state = first.state_dict()
        want = [y.tolist() for _, y in loop]
        same = loader(bad, seeded)
        same.load_state_dict(state)
        assert [y.tolist() for _, y in same] == want
        other = loader(bad[:1], seeded)
        other.load_state_dict(state)
        with pytest.raises(lcache.Error, match="was saved with a bad= list"):
            next(iter(other))


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress(files, root, monkeypatch):
    """On a terminal there is one line, which becomes the result. LCACHE_QUIET turns it off."""
    source, _ = files
    monkeypatch.setattr(checking, "_REDRAWN", 0.0)
    dataset = lt.ImageFolder(source, cache=root)
    for quiet in ("", "1"):
        monkeypatch.setenv("LCACHE_QUIET", quiet)
        monkeypatch.setattr(sys, "stderr", Terminal())
        assert len(lt.check(dataset, num_workers=0)) == 3
        shown = sys.stderr.getvalue()
        if quiet:
            assert shown == ""
        else:
            assert re.fullmatch(
                r"\r\x1b\[Kcheck pictures: 50 / 50 · 100 % · 3 bad · 0 s left\r\x1b\[Kchecked 50 of 50 samples of pictures in \d+ s: 3 bad\n", shown
            ), repr(shown)
