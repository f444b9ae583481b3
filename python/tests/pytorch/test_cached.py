"""lcache.torch.cached: every item equals that of the dataset of Hugging Face."""

import json
import os
import subprocess
import sys

import pytest
from embedded_servers import servers
from realserver import environment, lcache_command, needs_binary
from waits import wait_for_end

datasets = pytest.importorskip("datasets", reason="datasets is not installed")
torch = pytest.importorskip("torch", reason="torch is not installed")

import hub_datasets  # noqa: E402
import PIL  # noqa: E402
from hub_datasets import plain, plains  # noqa: E402
from torch.utils import data  # noqa: E402

import lcache  # noqa: E402
import lcache.torch as lt  # noqa: E402

pytestmark = needs_binary
SIZE = 8


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for key, value in environment(LCACHE_TMPFS="1", LCACHE_LINGER="0", HF_HUB_OFFLINE="1").items():
        monkeypatch.setenv(key, value)


def torchs(dataset, workers, collate=plains):
    """torch's own loader."""
    return data.DataLoader(dataset, SIZE, shuffle=True, num_workers=workers, collate_fn=collate, generator=torch.Generator().manual_seed(3))


def lcaches(dataset, workers, **more):
    return lt.DataLoader(dataset, SIZE, shuffle=True, seed=3, num_workers=workers, collate_fn=plains, **more)


@pytest.mark.parametrize("kind", hub_datasets.KINDS, ids=lambda kind: kind.__name__)
def test_every_item(tmp_path, kind):
    original = kind(tmp_path)
    dataset = lt.cached(original, cache=tmp_path / "cache")
    assert dataset.parts and len(dataset) == len(original) and dataset.column_names == original.column_names and dataset.features == original.features
    table = original.format["type"] == "arrow"
    want = [plain(original[i]) for i in range(len(original))]
    assert [plain(dataset[i]) for i in range(len(dataset))] == want
    assert plains(dataset) == plains(original)
    for key in (slice(3, 9), slice(None, None, -7), range(5), [4, 17, 4], torch.tensor([2, 3]), (1, 2), slice(9, 9)):
        assert plain(dataset[key]) == plain(original[key]), key
    assert plain(dataset[-1]) == want[-1]
    for name in original.column_names if original.format["type"] != "custom" else []:
        assert plain(dataset[name]) == plain(original[name])
    assert plains(dataset.iter(7)) == plains(original.iter(7))
    if table:
        return  # datasets can't list the rows of a batch in this format
    epochs = torchs(original, 0)
    first, second = list(epochs), list(epochs)
    assert list(torchs(dataset, 2)) == first
    loader = lcaches(dataset, 0)
    assert list(loader) == first and loader.batch_sampler.order_ahead.exact
    loop = iter(loader)
    seen = [next(loop) for _ in range(2)]
    state = json.loads(json.dumps(loader.state_dict()))
    again = lcaches(dataset, 2)
    again.load_state_dict(state)
    assert seen + list(again) == second and again.batch_sampler.order_ahead.exact


def test_spawned_workers_and_wrappers(tmp_path):
    """Spawned workers get a pickle; Subset and ConcatDataset request through lcache."""
    original = hub_datasets.shuffled(tmp_path)
    dataset = lt.cached(original, cache=tmp_path / "cache")
    assert list(lcaches(dataset, 1, multiprocessing_context="spawn")) == list(torchs(original, 0))
    wrap = [lambda ds: data.ConcatDataset([ds, data.Subset(ds, range(20, 3, -1))]), lambda ds: data.Subset(ds, [3, 1, 3])]
    for wrapped in wrap:
        loader = lcaches(wrapped(dataset), 0)
        assert list(loader) == list(torchs(wrapped(original), 0)) and loader.batch_sampler.order_ahead.exact
    assert len(servers(str(tmp_path))) == 1


def test_later_choices(tmp_path):
    """Methods that choose rows, columns or a format give a cached dataset with the same server, and leave the first one as it was."""
    original = hub_datasets.images(tmp_path)
    dataset = lt.cached(original, cache=tmp_path / "cache")
    for change in (
        lambda ds: ds.select(range(5, 20)),
        lambda ds: ds.shuffle(seed=1).with_format("numpy"),
        lambda ds: ds.train_test_split(test_size=7, seed=2)["test"],
        lambda ds: ds.filter(lambda row: row["label"] == 1),
        lambda ds: ds.with_transform(hub_datasets.mean_and_label),
        lambda ds: ds.remove_columns("label").rename_column("image", "picture"),
        lambda ds: ds.cast_column("image", datasets.Image(decode=False)),
        lambda ds: ds.sort("label"),
    ):
        changed = change(dataset)
        assert changed.job is dataset.job
        assert plains(changed) == plains(change(original))
    dataset.set_format("numpy", columns=["label"])
    assert plains(dataset) == plains(original.with_format("numpy", columns=["label"])) and original.format["type"] is None
    dataset.reset_format()
    assert plain(dataset[0]) == plain(original[0]) and lt.cached(dataset) is dataset
    for name, call in {"map": lambda: dataset.map(len), "cast": lambda: dataset.cast(dataset.features), "add_column": lambda: dataset.add_column("x", [])}.items():
        with pytest.raises(TypeError, match=f"^{name} of a cached dataset: its result has new values.* call {name} first, and lcache.torch.cached last"):
            call()
    assert dataset.unique("label") == original.unique("label")
    with pytest.raises(AttributeError):
        dataset.no_such_method


def test_columns_of_other_files(tmp_path):
    """concatenate_datasets(axis=1): the files of the largest column are cached, and the other columns come from the table."""
    words = hub_datasets.saved(tmp_path, {"text": ["x" * (70 + i) for i in range(40)]}, None, name="words").select(range(3, 33))
    blobs = hub_datasets.saved(tmp_path, {"blob": [bytes([i]) * (90 + i) for i in range(30)]}, None, shards=3, name="blobs")
    for k, order in enumerate(([words.flatten_indices(), blobs], [words, blobs], [blobs, words])):
        original = datasets.concatenate_datasets(order, axis=1).shuffle(seed=k)
        dataset = lt.cached(original, cache=tmp_path / f"cache{k}")
        assert dataset.parts == ("blob",) and plains(dataset) == plains(original) == [plain(dataset[i]) for i in range(30)]
        assert plains(dataset.select([4, 2])) == plains(original.select([4, 2])) and dataset.select([4]).job is dataset.job


@pytest.mark.parametrize("rows", [40, 30])
def test_files_written_again(tmp_path, monkeypatch, rows):
    """While a server still runs, its files are written again, also with fewer rows. Its bytes and the new table are not mixed."""
    monkeypatch.setenv("LCACHE_LINGER", "60")

    def load(number, rows=40):
        return hub_datasets.saved(tmp_path, {"text": [f"{number} " * 50 for _ in range(rows)], "label": [number] * rows}, None, shards=2)

    first = lt.cached(load(1), cache=tmp_path / "cache")
    assert plain(first[3]) == {"text": "1 " * 50, "label": 1}
    first.job.close()
    again = load(2, rows)
    with pytest.raises(lcache.ArgumentError, match=r"the files of the dataset changed after its server had listed them: `lcache stop \d+`, and run this again"):
        lt.cached(again, cache=tmp_path / "cache")
    (pid,) = servers(str(tmp_path))
    lcache_command("stop", str(pid))
    wait_for_end(pid)
    dataset = lt.cached(again, cache=tmp_path / "cache")
    assert plain(dataset[3]) == {"text": "2 " * 50, "label": 2} and plains(dataset) == plains(again)
    dataset.job.close()
    (pid,) = servers(str(tmp_path))
    lcache_command("stop", str(pid))
    wait_for_end(pid)


def test_values_of_another_type(tmp_path, caplog):
    """A column whose numbers the dataset has in another type than its files, at the same offsets, is read without lcache."""
    saved = hub_datasets.saved(tmp_path, {"ids": [[i] * (20 + 2 * (i % 5)) for i in range(40)], "text": ["x" * 80] * 40}, None, shards=1)
    features = datasets.Features({"ids": datasets.List(datasets.Value("int32")), "text": datasets.Value("string")})
    original = datasets.Dataset(saved.data.cast(features.arrow_schema))
    dataset = lt.cached(original, cache=tmp_path / "cache")
    assert dataset.parts == ("text",) and plains(dataset) == plains(original)
    assert "column 'ids' has values of another type in its files: lists of int64, and lists of int32 in the dataset: read without lcache" in caplog.text


def test_missing_numbers_in_other_rows(tmp_path, caplog):
    """A list with a missing number, in a row of the files that the dataset does not have: the column is read without lcache."""
    original = hub_datasets.saved(tmp_path, {"ids": [[1, 2, 3] * 30] * 30 + [[1, None]], "text": ["x" * 80] * 31}, None, shards=1).select(range(30))
    dataset = lt.cached(original, cache=tmp_path / "cache")
    assert dataset.parts == ("text",) and plains(dataset) == plains(original)
    assert "column 'ids' has lists with missing numbers in its files" in caplog.text


def test_indices(tmp_path):
    original = hub_datasets.images(tmp_path)
    dataset = lt.cached(original, cache=tmp_path / "cache")
    for key in (60, -61, [3, 60], [-61]):
        with pytest.raises(IndexError):
            original[key]
        with pytest.raises(IndexError):
            dataset[key]
    for key in (True, None, 1.5):
        with pytest.raises(TypeError):
            dataset[key]
    with pytest.raises((KeyError, ValueError)):
        dataset["no"]


def in_part(folder):
    """A dataset of which some rows are in memory."""
    return datasets.concatenate_datasets([hub_datasets.images(folder), datasets.Dataset.from_list([{"caption": "x" * 99}])])


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda _: datasets.Dataset.from_dict({"a": [b"x"]}), r"the dataset is in memory, and lcache reads files: ds.save_to_disk"),
        (lambda f: hub_datasets.images(f).to_iterable_dataset(), r"a streaming dataset has no order that lcache could know: load it without streaming=True"),
        (lambda f: hub_datasets.images(f).train_test_split(), r"it is a DatasetDict: give one of its splits, such as cached\(ds\['train'\]\)"),
        (lambda f: hub_datasets.images(f).select([]), r"the dataset has no rows"),
        (lambda f: hub_datasets.images(f).select_columns("label"), r"no column of bytes, text or lists of numbers, so lcache has nothing to serve"),
        (lambda _: [1, 2], r"it takes a datasets.Dataset, not list: use lcache.torch.Dataset or ImageFolder"),
        (lambda f: datasets.Dataset(hub_datasets.in_other_type(hub_datasets.numbers(f).select_columns("int8"))), r"is not in the files as it is in the dataset"),
        (in_part, r"is in the files only in a part of the rows, not from row 60 on"),
    ],
)  # fmt: skip
def test_refusals(tmp_path, make, error):
    """Each is one sentence that names what to do, before anything is written."""
    with pytest.raises(lcache.ArgumentError, match=error):
        lt.cached(make(tmp_path), cache=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def run(folder, root, text, name="block"):
    """Runs a program that finds `datasets`, `lt` and the cache's root."""
    path = folder / f"{name}.py"
    path.write_text(f"import datasets, lcache.torch as lt\nfrom hub_datasets import plain, plains\nroot = {str(root)!r}\n{text}\n")
    here = os.path.dirname(os.path.abspath(__file__))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.join(here, "../.."), os.path.join(here, ".."), here])}
    return subprocess.Popen([sys.executable, str(path)], env=env, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_programs_moved_and_deleted(tmp_path):
    """Two programs share a cache; a moved dataset has its own; and a dataset whose files are deleted gives what the cache has."""
    folder = tmp_path / "odd {name}, [1]"
    folder.mkdir()
    original = hub_datasets.images(folder)
    want = plains(original)
    root = tmp_path / "cache"
    text = f"ds = lt.cached(datasets.load_from_disk({str(folder / 'saved')!r}), cache=root)\nassert plains(ds)[7] == plain(ds[7])\nprint(len(ds))"
    programs = [run(tmp_path, root, text, name) for name in ("one", "two")]
    for program in programs:
        out, errors = program.communicate(timeout=120)
        assert (program.returncode, out) == (0, "60\n"), errors
    (cache,) = root.iterdir()
    assert cache.name.startswith("saved-") and (cache / "lcache-list").exists()
    assert plains(lt.cached(original, cache=cache)) == want  # the cache itself
    with pytest.raises(lcache.ArgumentError, match="is the cache of other files, or of another source"):
        lt.cached(hub_datasets.images(tmp_path, seed=2, name="others"), cache=cache)
    os.rename(folder / "saved", folder / "moved")
    dataset = lt.cached(datasets.load_from_disk(folder / "moved"), cache=root)
    assert plains(dataset) == want and len(list(root.iterdir())) == 2
    for name in os.listdir(folder / "moved"):
        os.unlink(folder / "moved" / name)
    assert plains(dataset) == want and list(lcaches(dataset, 0)) == list(torchs(original, 0))
    dataset.job.close()
    for made in list(root.iterdir()):
        for pid in servers(str(root)):
            wait_for_end(pid)
        lcache_command("rm", made)
    assert list(root.iterdir()) == []


def test_a_cell_that_cannot_be_decoded(tmp_path):
    original = hub_datasets.saved(
        tmp_path, {"image": [{"bytes": b"no picture" * 10, "path": None} if i == 3 else {"bytes": hub_datasets.png(bytes(300), 10, 10), "path": None} for i in range(9)]},
        datasets.Features({"image": datasets.Image(decode=False)}),
    ).cast_column("image", datasets.Image()).select(range(8, 1, -1))  # fmt: skip
    dataset = lt.cached(original, cache=tmp_path / "cache")
    for call in (lambda: dataset[5], lambda: dataset[2:7], lambda: dataset.__getitems__([1, 5]), lambda: list(dataset), lambda: list(lcaches(dataset, 0))):
        with pytest.raises(lcache.DecodeError, match="sample 5, 'data-00000-of-00002.arrow/3', of .* can't be decoded: UnidentifiedImageError") as raised:
            call()
        assert raised.value.index == 5 and isinstance(raised.value, PIL.UnidentifiedImageError)
