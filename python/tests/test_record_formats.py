"""The sources tfrecord:, megatron:, npy:, bin:, jsonl: and zip:, compared with the formats' own libraries, sample by sample."""

import json
import random
import shutil
import struct
import subprocess
import zipfile

import pytest
from realserver import environment, lcache_command, needs_binary

import lcache

np = pytest.importorskip("numpy")

pytestmark = needs_binary


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for key, value in environment(LCACHE_TMPFS="1", LCACHE_LINGER="0").items():
        monkeypatch.setenv(key, value)


def samples(source, cache, **more):
    """Name, label and parts of each sample that lcache serves, in the order of the source."""
    with lcache.open(source, cache=cache, **more) as job:
        batch = job.get(range(job.samples))
        return [(name, label, {k: bytes(v) for k, v in parts.items()}) for name, label, parts in zip(batch.names, batch.labels, batch.parts)]


def rows_of(part, shards):
    """What samples must give for rows with one part: by shard, the bytes of each row."""
    return [(f"{shard}/{i}", 0, {part: data}) for shard, rows in shards.items() for i, data in enumerate(rows)]


def test_tfrecord(tmp_path):
    tfrecord = pytest.importorskip("tfrecord")
    draw = random.Random(1)
    for s in range(3):
        writer = tfrecord.TFRecordWriter(str(tmp_path / f"x.tfrecord-0000{s}-of-00003"))
        for i in range(40):
            writer.write({
                "image/encoded": (draw.randbytes(draw.randrange(9000)), "byte"),
                "label": (draw.randrange(-5, 1000) if i else -(2**31), "int"),
                "box": ([draw.random() for _ in range(draw.randrange(5))], "float"),
                "name": (b"sample %d" % i, "byte"),
            })
        writer.close()
    raw, records, labels, features = {}, [], [], []
    for s in range(3):
        path = tmp_path / f"x.tfrecord-0000{s}-of-00003"
        raw[path.name] = [bytes(r) for r in tfrecord.tfrecord_iterator(str(path))]
        records += raw[path.name]
        for example in tfrecord.tfrecord_loader(str(path), None):
            labels.append(int(np.asarray(example["label"]).reshape(-1)[0]))
            boxes = np.asarray(example["box"], dtype="<f4").tobytes() if len(np.atleast_1d(example["box"])) else b""
            features.append({"image/encoded": bytes(example["image/encoded"]), **({"box": boxes} if boxes else {})})
    source = f"tfrecord:{tmp_path}/x.tfrecord-*"
    assert samples(source, tmp_path / "all") == rows_of("data", raw)
    some = samples(source, tmp_path / "some", feature=["image/encoded", "box"], label_feature="label")
    assert [(label, parts) for _, label, parts in some] == list(zip(labels, features))
    labelled = samples(source, tmp_path / "labelled", label_feature="label")
    assert [(label, parts["data"]) for _, label, parts in labelled] == list(zip(labels, records))


class IndexedDataset:
    """Megatron-LM's .bin and .idx, written from the description of the format: the header, lengths, pointers, and the index of documents."""

    CODES = ((np.uint8, 1), (np.int8, 2), (np.int16, 3), (np.int32, 4), (np.int64, 5), (np.float64, 6), (np.float32, 7), (np.uint16, 8))

    def __init__(self, prefix, dtype):
        self.prefix, self.dtype, self.sequences, self.documents = prefix, np.dtype(dtype), [], [0]

    def add(self, tokens):
        self.sequences.append(np.asarray(tokens, dtype=self.dtype))

    def end_document(self):
        self.documents.append(len(self.sequences))

    def write(self, modes=False):
        lengths = np.array([len(s) for s in self.sequences], dtype=np.int32)
        pointers = np.concatenate([[0], np.cumsum(lengths[:-1].astype(np.int64) * self.dtype.itemsize)]).astype(np.int64)
        with open(f"{self.prefix}.bin", "wb") as f:
            for s in self.sequences:
                f.write(s.tobytes())
        with open(f"{self.prefix}.idx", "wb") as f:
            code = next(code for kind, code in self.CODES if kind == self.dtype)
            f.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, code, len(lengths), len(self.documents)))
            f.write(lengths.tobytes() + pointers.tobytes() + np.array(self.documents, dtype=np.int64).tobytes())
            if modes:
                f.write(bytes(len(lengths)))


@pytest.mark.parametrize("dtype", ["uint16", "int32", "uint8", "int64", "float32", "float64"])
def test_megatron(tmp_path, dtype):
    draw = np.random.default_rng(3)
    shards = {}
    for part in ("a", "b"):
        made = IndexedDataset(tmp_path / f"{part}_text_document", dtype)
        for i in range(30):
            made.add(draw.integers(0, 200, size=draw.integers(0, 3000)))
            if i % 3 == 2:
                made.end_document()
        made.write(modes=part == "b")
        shards[f"{part}_text_document.bin"] = [s.tobytes() for s in made.sequences]
    assert samples(f"megatron:{tmp_path}/{{a,b}}_text_document", tmp_path / "both") == rows_of("tokens", shards)
    one = rows_of("tokens", {"a_text_document.bin": shards["a_text_document.bin"]})
    for i, name in enumerate(("a_text_document", "a_text_document.bin", "a_text_document.idx")):
        assert samples(f"megatron:{tmp_path}/{name}", tmp_path / f"one-{i}") == one


STRUCTURED = [("a", "<i4"), ("b", "<f8", (2, 3)), ("c", [("d", "|S5")]), ("", "|V3")]


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_npy(tmp_path, version):
    draw = random.Random(7)
    shards = {}
    for s, dtype in enumerate(("<f4", "|u1", ">i8", "<f2", "|b1", "<U5", "|S3", "<c8", "<M8[ns]", STRUCTURED)):
        kind = np.dtype(dtype)
        array = np.frombuffer(draw.randbytes(17 * 3 * 2 * kind.itemsize), dtype=kind).reshape(17, 3, 2)
        with open(tmp_path / f"x{s}.npy", "wb") as f:
            np.lib.format.write_array(f, array, version=version)
        shards[f"x{s}.npy"] = [row.tobytes() for row in np.load(tmp_path / f"x{s}.npy", mmap_mode="r")]
    assert samples(f"npy:{tmp_path}/x*.npy", tmp_path / "cache") == rows_of("data", shards)


def test_npy_aligned_and_one_dimension(tmp_path):
    kind = np.dtype([("a", "|u1"), ("b", "<f8")], align=True)
    np.save(tmp_path / "x.npy", np.zeros(9, dtype=kind))
    assert samples(f"npy:{tmp_path}/x.npy", tmp_path / "cache") == rows_of("data", {"x.npy": [bytes(kind.itemsize)] * 9})
    tokens = np.arange(1000, dtype=np.uint16)
    np.save(tmp_path / "t.npy", tokens)
    windows = [tokens[i : i + 65].tobytes() for i in range(0, 1000 - 64, 65)]
    assert samples(f"npy:{tmp_path}/t.npy", tmp_path / "windows", dtype="uint16", shape=65) == rows_of("data", {"t.npy": windows})


@pytest.mark.parametrize("flags", [{"record_bytes": 130}, {"dtype": "uint16", "shape": 65}, {"dtype": np.uint16, "shape": (13, 5)}, {"dtype": np.dtype("<u2"), "shape": [65]}])
def test_bin(tmp_path, flags):
    tokens = np.random.default_rng(1).integers(0, 60000, size=10_000).astype(np.uint16)
    tokens.tofile(tmp_path / "t.bin")
    mapped = np.memmap(tmp_path / "t.bin", dtype=np.uint16, mode="r")
    windows = [mapped[i : i + 65].tobytes() for i in range(0, len(mapped) - 64, 65)]
    assert samples(f"bin:{tmp_path}/t.bin", tmp_path / "cache", **flags) == rows_of("data", {"t.bin": windows})


def test_the_rest_of_a_file_is_reported(tmp_path):
    (tmp_path / "t.bin").write_bytes(bytes(1050))
    report = lcache_command("ingest", "--source", f"bin:{tmp_path}/t.bin", "--record-bytes", "100", "--cache", tmp_path / "cache")
    assert "less than a record" in report.stderr and "50" in report.stderr, report.stderr


def test_jsonl(tmp_path):
    draw = random.Random(2)
    values = []
    for i in range(200):
        values.append({
            "text": "".join(draw.choice('é"\\\n{}[]:,x ') for _ in range(draw.randrange(300))),
            "meta": {"id": "not this", "label": [1, {"label": 2}]},
            "label": draw.randrange(-9, 9),
            "id": i if i % 2 else f"né {i}\t",
        })
    lines = [json.dumps(v, ensure_ascii=i % 3 == 0, separators=((",", ":"), (", ", ": "))[i % 2]) for i, v in enumerate(values)]
    ends = ["\n", "\r\n", "\n\n \t\n"]
    (tmp_path / "x.jsonl").write_bytes("".join(line + draw.choice(ends) for line in lines[:-1]).encode() + lines[-1].encode())
    with open(tmp_path / "x.jsonl", encoding="utf-8", newline="\n") as f:
        read = [json.loads(line) for line in f if line.strip()]
    assert read == values
    got = samples(f"jsonl:{tmp_path}/x.jsonl", tmp_path / "cache", label_field="label", key="id")
    assert [(name, label, json.loads(parts["json"])) for name, label, parts in got] == [(str(v["id"]), v["label"], v) for v in values]
    plain = samples(f"jsonl:{tmp_path}/x.jsonl", tmp_path / "plain")
    assert plain == rows_of("json", {"x.jsonl": [line.encode() for line in lines]})


def zipped(path, members, **more):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        for name, data in members.items():
            with z.open(name, "w", **more) as f:
                f.write(data)


@pytest.mark.parametrize("more", [{}, {"force_zip64": True}])
def test_zip(tmp_path, more):
    draw = random.Random(4)
    want = []
    for s in range(2):
        members = {"README": b"of no sample"}
        for i in range(50):
            members[f"d/{i:03}.jpg"], members[f"d/{i:03}.cls"] = draw.randbytes(draw.randrange(4000)), b"%d\n" % (i % 7)
        zipped(tmp_path / f"x{s}.zip", members, **more)
        with zipfile.ZipFile(tmp_path / f"x{s}.zip") as z:
            for i in range(50):
                want.append((f"x{s}.zip/d/{i:03}", i % 7, {"jpg": z.read(f"d/{i:03}.jpg"), "cls": z.read(f"d/{i:03}.cls")}))
    assert samples(f"zip:{tmp_path}/x*.zip", tmp_path / "cache") == want
    cls_first = samples(f"zip:{tmp_path}/x*.zip", tmp_path / "cls", part="cls")
    assert [list(parts) for _, _, parts in cls_first] == [["cls", "jpg"]] * 100
    folders = samples(f"zip:{tmp_path}/x*.zip", tmp_path / "ext", ext="jpg")
    assert [(name, label, {"jpg": parts["jpg"]}) for name, _, parts in want for label in [0]] == folders


def test_zip_of_many_parts_and_odd_names(tmp_path):
    members = {f"é {i % 3}/x.{i // 3}": b"%d" % i * i for i in (0, *range(1, 90))}
    members = dict(sorted(members.items()))
    zipped(tmp_path / "x.zip", members)
    got = samples(f"zip:{tmp_path}/x.zip", tmp_path / "cache", flat=True)
    assert len(got) == 3 and all(len(parts) == 30 for _, _, parts in got)
    assert {f"{name[len('x.zip/'):]}.{ext}": data for name, _, parts in got for ext, data in parts.items()} == members


def test_zip_of_the_program_zip(tmp_path):
    if shutil.which("zip") is None:
        pytest.skip("the program zip is not installed")
    (tmp_path / "d").mkdir()
    for i in range(20):
        (tmp_path / "d" / f"{i:02}.txt").write_bytes(b"%d" % i * 100)
    subprocess.run(["zip", "-q", "-0", "-r", "x.zip", "d"], cwd=tmp_path, check=True)
    got = {name: parts["txt"] for name, _, parts in samples(f"zip:{tmp_path}/x.zip", tmp_path / "cache")}
    assert got == {f"x.zip/d/{i:02}": b"%d" % i * 100 for i in range(20)}


def test_a_compressed_member_is_an_error(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("a.txt", b"x" * 1000)
    with pytest.raises(lcache.Error, match=r"member \"a.txt\" is compressed \(deflate\).*ZIP_STORED"):
        lcache.open(f"zip:{tmp_path}/x.zip", cache=tmp_path / "cache")


@pytest.mark.parametrize(
    ("source", "more", "error"),
    [
        ("bin:t.bin", {}, "the size of a record is not known: give record_bytes=, or dtype= and shape="),
        ("bin:t.bin", {"dtype": "uint16"}, "a record's size needs both dtype= and shape=, or record_bytes="),
        ("bin:t.bin", {"dtype": "int7", "shape": 3}, 'dtype=: "int7" is unknown'),
        ("bin:t.bin", {"record_bytes": 0}, 'record_bytes=: "0" is not an integer from 1 to 4294967295'),
        ("bin:t.bin", {"record_bytes": 5, "dtype": "uint16", "shape": 3}, "the record's size is 5 by record_bytes=, and 6 by dtype= and shape=: leave one out"),
        ("jsonl:t.bin", {"record_bytes": 5}, "record_bytes= is not for a source jsonl:"),
        ("zip:t.bin", {"record_bytes": 5}, "record_bytes= is only for records of larger files: leave it out"),
        ("tar:t.bin", {"record_bytes": 5}, "record_bytes= is only for records of larger files: leave it out"),
        ("hdf5:t.h5", {}, "examples/index_hdf5.py, and give ranges:INDEX"),
    ],
)
def test_flags(tmp_path, source, more, error):
    (tmp_path / "t.bin").write_bytes(bytes(100))
    kind, _, name = source.partition(":")
    with pytest.raises(lcache.Error) as raised:
        lcache.open(f"{kind}:{tmp_path}/{name}", cache=tmp_path / "cache", **more)
    assert error in str(raised.value)
