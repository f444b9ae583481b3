"""Sources KIND:@FILE: lists of files."""

import json
import os
import tarfile
import zipfile

import numpy as np
import pytest
from realserver import environment, lcache_command, needs_binary

import lcache
from lcache._client.cachedirs import folders
from lcache._client.filelists import list_identity
from lcache._client.match import HeldListing, Listing, difference

with open(os.path.join(os.path.dirname(__file__), "../../testdata/filelists.json"), encoding="utf-8") as f:
    CASES = json.load(f)["cases"]


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for key, value in environment(LCACHE_TMPFS="1", LCACHE_LINGER="0").items():
        monkeypatch.setenv(key, value)


@pytest.mark.parametrize("case", CASES, ids=[case["why"] for case in CASES])
def test_identity(case, tmp_path):
    file = tmp_path / "list.txt"
    file.write_bytes(case["text"].encode())
    assert list_identity(f"arrow:@{file}") == (case["identity"] or f"arrow:@{file}")


def test_the_content_decides(tmp_path, monkeypatch):
    for name in "a", "b", "c":
        (tmp_path / name).write_text(f"{tmp_path}/x/1.arrow\n{tmp_path}/{'y' if name == 'c' else 'x'}/2.arrow\n")
    a, b, c = (f"arrow:@{tmp_path / name}" for name in ("a", "b", "c"))
    assert folders(a, "/r") == folders(b, "/r") != folders(c, "/r")
    assert folders(a, "/r")[0].startswith("/r/x-")
    held = HeldListing.of_server(a, {"identity": list_identity(a)})
    assert difference(Listing.of(b), held) == "" and difference(Listing.of(c), held) == "the source"
    os.remove(tmp_path / "a")
    kept = HeldListing.of_job_file({"source": a, "identity": held.identity})
    assert difference(Listing.of(b), kept) == "" and difference(Listing.of(c), kept) == "the source"
    monkeypatch.chdir(tmp_path)
    assert Listing.of("arrow:@b").source == b and list_identity(a) == a


def served(source, cache, **more):
    with lcache.open(source, cache=cache, epochs=1, batch_size=8, recipe="torch.distributed_sampler", **more) as job:
        batch = job.get(range(job.samples))
        return [(name, {k: bytes(v) for k, v in parts.items()}) for name, parts in zip(batch.names, batch.parts)]


def write_list(tmp_path, *files, name="list.txt"):
    (tmp_path / name).write_text("".join(f"{file}\n" for file in files))
    return f"@{tmp_path / name}"


@needs_binary
def test_arrow_files_of_several_folders(tmp_path):
    """The files of a dataset that was concatenated from two, one of which is a folder of save_to_disk, in the dataset's order."""
    datasets = pytest.importorskip("datasets")
    one = datasets.Dataset.from_dict({"x": [bytes([i]) * 100 for i in range(30)]})
    other = datasets.Dataset.from_dict({"x": [bytes([i]) * 50 for i in range(40)]})
    one.save_to_disk(tmp_path / "p" / "one", num_shards=2)
    other.save_to_disk(tmp_path / "q" / "deep" / "other")
    both = datasets.concatenate_datasets([datasets.load_from_disk(tmp_path / "q" / "deep" / "other"), datasets.load_from_disk(tmp_path / "p" / "one")])
    files = [f["filename"] for f in both.cache_files]
    found = served("arrow:" + write_list(tmp_path, *files), tmp_path / "root")
    assert [parts["x"] for _, parts in found] == both["x"][:]
    assert len({name for name, _ in found}) == len(both) and found[0][0] == "q/deep/other/data-00000-of-00001.arrow/0"
    # The same list under another name, after the first one is gone, is the same cache. A list of other files is another one.
    again = write_list(tmp_path, *files, name="again.txt")
    os.remove(tmp_path / "list.txt")
    assert served("arrow:" + again, tmp_path / "root") == found
    assert len(os.listdir(tmp_path / "root")) == 1
    assert [parts["x"] for _, parts in served("arrow:" + write_list(tmp_path, files[0]), tmp_path / "root")] == both["x"][:40]
    assert len(os.listdir(tmp_path / "root")) == 2
    folder = write_list(tmp_path, tmp_path / "p" / "one", name="folder.txt")
    assert [parts["x"] for _, parts in served("arrow:" + folder, tmp_path / "root")] == one["x"][:]


@needs_binary
def test_other_kinds(tmp_path):
    want = {}
    for i, folder in enumerate("ba"):
        (tmp_path / folder).mkdir()
        with tarfile.open(tmp_path / folder / "s.tar", "w") as tar, zipfile.ZipFile(tmp_path / folder / "s.zip", "w") as archive:
            for k in range(3):
                (tmp_path / "m.bin").write_bytes(bytes([i, k]) * 9)
                tar.add(tmp_path / "m.bin", f"{k}.bin")
                archive.write(tmp_path / "m.bin", f"{k}.bin")
                want[f"{folder}/s/{k}"] = bytes([i, k]) * 9
        np.save(tmp_path / folder / "s.npy", np.arange(12, dtype=np.int16).reshape(3, 4) + i)
    for kind in "tar", "zip":
        found = served(f"{kind}:" + write_list(tmp_path, "b/s." + kind, tmp_path / "a" / f"s.{kind}"), tmp_path / kind)
        assert {name.replace("." + kind, ""): parts["bin"] for name, parts in found} == want
    found = served("npy:" + write_list(tmp_path, "b/s.npy", "a/s.npy"), tmp_path / "npy")
    assert [np.frombuffer(parts["data"], "<i2").tolist() for _, parts in found] == [[j + 4 * r + i for j in range(4)] for i in range(2) for r in range(3)]


@needs_binary
def test_an_edited_list_adapts_a_cache_of_its_own(tmp_path):
    """With a cache directory that is given, an edited list is a source that has changed."""
    for name in "xyz":
        (tmp_path / f"{name}.bin").write_bytes(name.encode() * 16)
    source, cache = "bin:" + write_list(tmp_path, "x.bin", "y.bin"), tmp_path / "c"
    lcache_command("ingest", "--source", source, "--cache", str(cache), "--record-bytes", "4")
    write_list(tmp_path, "x.bin", "z.bin")
    assert [parts["data"] for _, parts in served(source, cache, record_bytes=4)] == [b"xxxx"] * 4 + [b"zzzz"] * 4


@needs_binary
def test_bad_lists(tmp_path):
    for files, says in ((["x.bin", "./x.bin"], "line 2: .* is already in line 1"), (["x.bin", "s3://b/x"], "line 2: .* is an address"), ([], "it is empty")):
        with pytest.raises(lcache.Error, match=says):
            served("bin:" + write_list(tmp_path, *files), tmp_path / "c", record_bytes=4)
    with pytest.raises(lcache.Error, match="No such file|no such file"):
        served("bin:@missing.txt", tmp_path / "c", record_bytes=4)
