"""Runs the blocks of docs/records.md in a folder with data of each kind. The paths /data, /nvme and /examples in them are those of the test."""

import json
import os
import re
import subprocess
import sys
import zipfile

import pytest
from realserver import environment, needs_binary

np = pytest.importorskip("numpy")
pytest.importorskip("torch")
h5py = pytest.importorskip("h5py")
tfrecord = pytest.importorskip("tfrecord")
datasets = pytest.importorskip("datasets")

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "../../..")
BLOCKS = re.findall(r"^```(sh|python)\n(.*?)^```", open(os.path.join(ROOT, "docs/records.md"), encoding="utf-8").read(), re.M | re.S)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with data of each kind on the page, as the formats' own libraries write it."""
    root = tmp_path_factory.mktemp("page")
    data = root / "data"
    (data / "clouds").mkdir(parents=True)
    draw = np.random.default_rng(1)
    for s in range(2):
        writer = tfrecord.TFRecordWriter(str(data / f"train.tfrecord-{s}"))
        for i in range(10):
            writer.write({"image/encoded": (draw.bytes(500), "byte"), "image/class/label": (i, "int")})
        writer.close()
        draw.integers(0, 50_000, 20_000).astype("<u2").tofile(data / f"tokens-{s}.bin")
        np.save(data / f"features-{s}.npy", draw.random((30, 8), dtype=np.float32))
        with open(data / f"train-{s}.jsonl", "w", encoding="utf-8") as f:
            f.writelines(json.dumps({"id": f"{s}-{i}", "label": i, "text": "é" * i}) + "\n" for i in range(20))
        with zipfile.ZipFile(data / f"archive-{s}.zip", "w") as z:
            for i in range(10):
                z.writestr(f"{i}.jpg", draw.bytes(300))
                z.writestr(f"{i}.cls", str(i))
        with h5py.File(data / f"train-{s}.h5", "w") as f:
            f["images"], f["labels"] = draw.random((10, 3, 8, 8)), np.arange(10)
    np.save(data / "tokens.npy", draw.integers(0, 50_000, 20_000).astype("<u2"))
    lengths = draw.integers(1, 500, 40).astype("<i4")
    draw.integers(0, 50_000, lengths.sum()).astype("<u2").tofile(data / "corpus_text_document.bin")
    pointers = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype("<i8") * 2
    numbers = np.array([len(lengths), 2], dtype="<u8").tobytes()
    index = b"MMIDIDX\x00\x00" + (1).to_bytes(8, "little") + b"\x08" + numbers + lengths.tobytes() + pointers.tobytes() + np.array([0, 40], dtype="<i8").tobytes()
    (data / "corpus_text_document.idx").write_bytes(index)
    rows = {"input_ids": draw.integers(0, 50_000, (64, 512)).tolist(), "label": [i % 3 for i in range(64)]}
    features = datasets.Features({"input_ids": datasets.List(datasets.Value("int32")), "label": datasets.Value("int64")})
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(data / "tokenised", num_shards=2)
    for i in range(5):
        np.savez(data / "clouds" / f"{i}.npz", points=draw.random((100, 3)), labels=np.zeros(100))
    return root


@needs_binary
@pytest.mark.parametrize("n", range(len(BLOCKS)))
def test_block(data, n, tmp_path):
    language, text = BLOCKS[n]
    for name in ("data", "nvme"):
        text = re.sub(rf"(?<![\w.])/{name}\b", str(data / name), text)
    text = text.replace("/examples/", os.path.join(ROOT, "examples/"))
    env = {**os.environ, **environment(LCACHE_TMPFS="1", LCACHE_LINGER="0"), "PYTHONPATH": os.path.join(ROOT, "python")}
    env["PATH"] = os.pathsep.join([os.path.dirname(os.path.abspath(env["LCACHE_BIN"])), os.path.dirname(sys.executable), env["PATH"]])
    if language == "python":
        (tmp_path / "block.py").write_text(text, encoding="utf-8")
        command = [sys.executable, str(tmp_path / "block.py")]
    else:
        command = ["sh", "-ec", text]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    assert "error" not in done.stderr.lower(), done.stderr


def test_all_kinds():
    """Each kind of source on the page has a block."""
    text = "".join(block for _, block in BLOCKS)
    for kind in ("tfrecord", "megatron", "bin", "npy", "jsonl", "zip", "ranges"):
        assert f"{kind}:" in text
