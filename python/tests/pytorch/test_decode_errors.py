"""The error for a sample that can't be decoded has its index, name and source, in this process and from workers."""

import copy
import os
import pickle
import shutil
import signal
import traceback

import pytest
from embedded_servers import folder, root  # noqa: F401
from waits import wait_for_end

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)

import lcache  # noqa: E402
import lcache.torch as lt  # noqa: E402
from lcache.torch.decode_errors import decode_error  # noqa: E402

BAD = 37


def picky(raw, sample):
    if sample.index == BAD:
        raise ValueError("a broken header")
    return sample.index


def name_of(folder, index):
    return os.path.relpath(folder.files[index][0], folder.root)


def check(error, folder, whole=True):
    """Also for an error that torch has made again from its text."""
    text = str(error)
    for said in (f"sample {BAD}", repr(name_of(folder, BAD)), str(folder.root), "ValueError: a broken header"):
        assert said in text
    assert whole or "in picky" in text, "the traceback of the worker is lost"
    if whole:
        assert (error.index, error.sample, error.source) == (BAD, name_of(folder, BAD), str(folder.root))
        assert isinstance(error.__cause__, ValueError) and error.__cause__.__traceback__ is not None and error.cause == "ValueError: a broken header"


@pytest.mark.parametrize("workers", [0, 2])
def test_out_of_a_loader(folder, root, workers):
    loader = lt.DataLoader(lt.Dataset(folder.root, picky, cache=root), 16, num_workers=workers)
    with pytest.raises(lcache.DecodeError) as raised:
        list(loader)
    check(raised.value, folder, whole=not workers)


def test_one_by_one_and_in_batches(folder, root):
    ours = lt.Dataset(folder.root, picky, cache=root)
    for ask in (lambda: ours[BAD], lambda: ours[BAD - len(ours)], lambda: ours.__getitems__([1, BAD, 2])):
        with pytest.raises(lcache.SampleError) as raised:
            ask()
        assert isinstance(raised.value, lcache.DecodeError) and isinstance(raised.value, ValueError)
        check(raised.value, folder)
    assert ours[BAD - 1] == BAD - 1


def no_image(raw):
    raise OSError("no image")


def wrong(value):
    raise IndexError("out of range")


@pytest.mark.parametrize("given, cause", [({"decode": no_image}, "OSError: no image"),
                                          ({"decode": bytes, "transform": wrong}, "IndexError: out of range"),
                                          ({"decode": bytes, "target_transform": wrong}, "IndexError: out of range")])
def test_image_folder(folder, root, tmp_path, given, cause):
    source = shutil.copytree(folder.root, tmp_path / "pictures")
    for name, _ in folder.files:
        path = source / os.path.relpath(name, folder.root)
        path.rename(path.with_suffix(".png"))
    ours = lt.ImageFolder(source, cache=root, **given)
    with pytest.raises(lcache.DecodeError) as raised:
        list(ours)  # an IndexError would look like the end of the samples
    assert raised.value.index == 0 and repr(ours.job.names([0])[0]) in str(raised.value) and cause in str(raised.value)


def test_without_a_name(folder, root, monkeypatch):
    """The server has ended, so the name is unknown."""
    ours = lt.Dataset(folder.root, picky, cache=root)

    def kills(raw, sample):
        os.kill(ours.job.pid, signal.SIGKILL)
        wait_for_end(ours.job.pid)
        monkeypatch.setenv("LCACHE_BIN", "/nonexistent")
        return picky(raw, sample)

    ours.job._link.timeout, ours.decode = 0.2, kills
    with pytest.raises(lcache.DecodeError, match=f"sample {BAD} of .*a broken header") as raised:
        ours[BAD]
    assert (raised.value.index, raised.value.sample) == (BAD, None)


def test_errors_of_the_server_are_not_decode_errors(folder, root):
    def ask(raw, sample):
        raise lcache.TimeoutError("the name of a sample")

    with pytest.raises(lcache.TimeoutError, match="^the name of a sample \\[LC061\\]$"):
        lt.Dataset(folder.root, ask, cache=root)[BAD]


class BadHeader(SyntaxError):
    def __init__(self, place, code):
        super().__init__(f"{place}: {code}")
        self.code = code


class NeverSubclassed(RuntimeError):
    def __init_subclass__(cls):
        raise TypeError("no")


CAUSES = [OSError(5, "input/output error", "x.jpg"), ValueError("v"), SyntaxError("broken PNG"), KeyError("jpg"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "start"),
          BadHeader("byte 7", 9), RuntimeError("r"), NeverSubclassed("n"), IndexError("i"), StopIteration("s"), EOFError("e"), ZeroDivisionError("z")]
CAUGHT_AS = {NeverSubclassed: RuntimeError, IndexError: LookupError, StopIteration: Exception}


class Fails:
    """A decode that raises CAUSES[k] for sample k."""

    def __call__(self, raw, sample):
        if sample.index < len(CAUSES):
            raise CAUSES[sample.index]
        return sample.index


@pytest.mark.parametrize("workers", [0, 2])
def test_classes_of_causes(folder, root, workers):
    """`except OSError` around a loop catches a broken picture, as without lcache."""
    ours = lt.Dataset(folder.root, Fails(), cache=root)
    for k, cause in enumerate(CAUSES):
        loader = torch.utils.data.DataLoader(ours, sampler=[k], batch_size=None, num_workers=min(workers, 1)) if workers else ours
        with pytest.raises(CAUGHT_AS.get(type(cause), type(cause))) as raised:
            next(iter(loader)) if workers else loader[k]
        assert isinstance(raised.value, lcache.DecodeError) and not isinstance(raised.value, (IndexError, StopIteration))
        said = "".join(traceback.format_exception(type(raised.value), raised.value, None))
        assert f"sample {k}" in said and type(cause).__name__ in said and f"sample {k}" in str(raised.value)


def test_attributes_of_causes(folder, root):
    ours = lt.Dataset(folder.root, Fails(), cache=root)
    with pytest.raises(OSError) as raised:
        ours[0]
    assert (raised.value.errno, raised.value.filename, raised.value.index) == (5, "x.jpg", 0)
    with pytest.raises(BadHeader) as raised:
        ours[CAUSES.index(next(cause for cause in CAUSES if isinstance(cause, BadHeader)))]
    assert raised.value.code == 9


def test_whole_batch(folder, root):
    def broken(views, columns):
        raise OSError("no batch")

    with pytest.raises(OSError, match="no batch") as raised:
        lt.Dataset(folder.root, decode_batch=broken, cache=root)[0]
    assert isinstance(raised.value, lcache.DecodeError)


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: type(cause).__name__)
def test_pickled(cause):
    error = decode_error(cause, "m", 3, "a/b", "/src")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error) and str(again) == "m [LC060]" and (again.index, again.sample, again.source, again.cause) == (3, "a/b", "/src", error.cause)
    assert pickle.loads(pickle.dumps(type(error))) is type(error)


@pytest.mark.parametrize("error", [lcache.SampleError("m", "a/b", "gone"), lcache.DecodeError("m", 3, "a/b", "/src", "ValueError: x")])
def test_made_again(error):
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error) and str(again) == f"m [{error.code}]" and vars(again) == vars(error)
    assert str(type(error)("only text")) == f"only text [{error.code}]" and type(error)("only text").sample is None
