"""Datasets of the `datasets` package, of many kinds, and a form of their items that can be compared."""

import io
import random
import struct
import wave

import datasets
import numpy as np
import pyarrow as pa
import torch
from PIL import Image
from pictures import png

ROWS = 60


def plain(item):
    """An item as lists, texts and numbers: pictures, sounds, tensors and arrays with their types and all of their values."""
    if isinstance(item, dict):
        return {key: plain(value) for key, value in item.items()}
    if isinstance(item, (list, tuple, datasets.arrow_dataset.Column)):
        return [plain(value) for value in item]
    if isinstance(item, Image.Image):
        return "picture", item.mode, item.size, item.tobytes()
    if isinstance(item, (torch.Tensor, np.ndarray, np.generic)):
        return type(item).__name__, str(item.dtype), list(item.shape), str(item.tolist())
    if hasattr(item, "get_all_samples"):  # a decoder of torchcodec
        samples = item.get_all_samples()
        return "sound", samples.sample_rate, samples.data.tolist()
    if hasattr(item, "to_pydict"):
        return "table", item.to_pydict()
    return item


def plains(items):
    """plain of a batch, as a collate_fn that every start method of workers takes."""
    return [plain(item) for item in items]


def picture(draw):
    width, height = draw.randrange(1, 12), draw.randrange(1, 12)
    return png(draw.randbytes(3 * width * height), width, height)


def sound(draw):
    made = io.BytesIO()
    with wave.open(made, "wb") as f:
        f.setnchannels(1)
        f.setsampwidth(2)
        f.setframerate(8000)
        f.writeframes(struct.pack("<200h", *[draw.randrange(-9999, 9999) for _ in range(200)]))
    return made.getvalue()


def saved(folder, columns, features, shards=2, name="saved"):
    made = datasets.Dataset.from_dict(columns, features=features)
    made.save_to_disk(folder / name, num_shards=shards)
    return datasets.load_from_disk(folder / name)


def images(folder, rows=ROWS, seed=1, name="saved", shards=3):
    draw = random.Random(seed)
    columns = {
        "image": [None if i % 11 == 5 else {"bytes": picture(draw), "path": None if i % 3 else f"{i}.png"} for i in range(rows)],
        "label": [draw.randrange(3) for _ in range(rows)],
        "caption": [None if i % 7 == 3 else f"é {i}" * draw.randrange(30) for i in range(rows)],
    }
    features = {"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b", "c"]), "caption": datasets.Value("string")}
    return saved(folder, columns, datasets.Features(features), shards, name)


def images_as_paths(folder):
    """An image column with the paths of files, and a column of bytes."""
    draw = random.Random(2)
    for i in range(ROWS):
        (folder / f"{i}.png").write_bytes(picture(draw))
    columns = {"image": [str(folder / f"{i}.png") for i in range(ROWS)], "more": [draw.randbytes(draw.randrange(300)) for _ in range(ROWS)]}
    made = datasets.Dataset.from_dict(columns, features=datasets.Features({"image": datasets.Value("string"), "more": datasets.Value("binary")}))
    return made.cast_column("image", datasets.Image()).map(None, cache_file_name=str(folder / "paths.arrow"))


def audio(folder):
    draw = random.Random(3)
    columns = {"audio": [{"bytes": sound(draw), "path": f"{i}.wav"} for i in range(ROWS)], "text": [f"said {i}" for i in range(ROWS)]}
    made = saved(folder, columns, datasets.Features({"audio": datasets.Audio(), "text": datasets.Value("string")}))
    try:
        plain(made[0])
    except (ImportError, RuntimeError):  # torchcodec, or its FFmpeg, is missing
        return made.cast_column("audio", datasets.Audio(decode=False))
    return made


def waves(batch):
    """The numbers of sounds."""
    found = []
    for sound in batch["audio"]:
        with wave.open(io.BytesIO(sound["bytes"])) as f:
            found.append(np.frombuffer(f.readframes(f.getnframes()), "<i2"))
    return {"audio": found, "text": batch["text"]}


def audio_decoded(folder):
    return audio(folder).cast_column("audio", datasets.Audio(decode=False)).with_transform(waves)


def nested(folder):
    draw = random.Random(4)

    def answer():
        return {"text": "x" * draw.randrange(9), "start": draw.randrange(99), "deep": [[1, 2], [], [draw.randrange(9)]]}

    columns = {
        "answers": [[answer() for _ in range(draw.randrange(4))] for _ in range(ROWS)],
        "where": [None if i % 5 == 1 else {"name": f"n{i}" * 40, "data": draw.randbytes(100) if i % 4 else None, "size": i} for i in range(ROWS)],
        "context": ["words " * draw.randrange(50) for _ in range(ROWS)],
        "pixels": [np.full((3, 4), i, "uint8").tolist() for i in range(ROWS)],
    }
    features = {
        "answers": datasets.List({"text": datasets.Value("string"), "start": datasets.Value("int16"), "deep": datasets.List(datasets.List(datasets.Value("int8")))}),
        "where": {"name": datasets.Value("string"), "data": datasets.Value("binary"), "size": datasets.Value("uint8")},
        "context": datasets.Value("large_string"),
        "pixels": datasets.Array2D((3, 4), "uint8"),
    }
    return saved(folder, columns, datasets.Features(features))


def numbers(folder, nulls=True):
    """Lists of numbers of many types, also of a fixed length, and with missing numbers."""
    draw = random.Random(5)
    columns, features = {}, {}
    for kind in ("int8", "uint16", "int32", "int64", "float16", "float32", "float64"):
        columns[kind] = [None if nulls and draw.random() < 0.1 else [draw.randrange(100) for _ in range(draw.randrange(40))] for _ in range(ROWS)]
        features[kind] = datasets.List(datasets.Value(kind))
    columns["fixed"] = [None if nulls and i == 9 else [draw.random() for _ in range(20)] for i in range(ROWS)]
    features["fixed"] = datasets.List(datasets.Value("float32"), length=20)
    columns["large"] = [[i] * draw.randrange(30) for i in range(ROWS)]
    features["large"] = datasets.LargeList(datasets.Value("int32"))
    columns["missing"] = [[None, i, 7] * draw.randrange(30) for i in range(ROWS)]
    features["missing"] = datasets.List(datasets.Value("int64"))
    columns["bits"] = [[True, False] * draw.randrange(99) for i in range(ROWS)]
    features["bits"] = datasets.List(datasets.Value("bool"))
    return saved(folder, columns, datasets.Features(features))


def in_other_type(dataset):
    """The table of a dataset with a column int8, of which no value is as in the files."""
    return dataset.data.cast(pa.schema({"int8": pa.list_(pa.int64())}))


def selected(folder):
    return images(folder).select([5, 50, 5, 7, 0, 59, 33, *range(10, 30)])


def shuffled(folder):
    return images(folder).shuffle(seed=7).select(range(3, 45)).shuffle(seed=8)


def split(folder):
    return images(folder).train_test_split(test_size=0.3, seed=5)["test"]


def concatenated(folder):
    """Parts of two datasets, one of them twice, with a column that is only in memory."""
    one, two = images(folder), images(folder, 25, seed=9, name="other", shards=1)
    made = datasets.concatenate_datasets([one.select(range(40, 55)), two, one.select(range(30))])
    return made.add_column("number", list(range(len(made)))).shuffle(seed=3)


def tensors(folder):
    return numbers(folder, nulls=False).remove_columns(["float16", "missing"]).with_format("torch")


def arrays(folder):
    return nested(folder).with_format("numpy", columns=["pixels", "context"], output_all_columns=True)


def arrays_with_missing(folder):
    return missing(folder).with_format("numpy")


def tables(folder):
    return nested(folder).with_format("arrow")


def mean_and_label(batch):
    return {"mean": [-1.0 if image is None else float(np.asarray(image).mean()) for image in batch["image"]], "label": batch["label"]}


def transformed(folder):
    made = images(folder)
    made.set_transform(mean_and_label, columns=["image", "label"], output_all_columns=True)
    return made


def missing(folder):
    """Columns in which most values, or all of them, are missing."""
    columns = {
        "label": [None if i % 3 else i % 2 for i in range(ROWS)],
        "data": [b"" if i % 5 == 0 else None if i % 2 else bytes(i * 9) for i in range(ROWS)],
        "image": [{"bytes": None, "path": "x"} if i % 3 == 0 else None if i % 3 == 1 else {"bytes": b"", "path": None} for i in range(ROWS)],
        "empty": [None] * ROWS,
    }
    features = {"label": datasets.ClassLabel(names=["a", "b"]), "data": datasets.Value("binary"), "empty": datasets.Value("string")}
    features["image"] = {"bytes": datasets.Value("binary"), "path": datasets.Value("string")}
    return saved(folder, columns, datasets.Features(features))


def loaded(folder):
    """What load_dataset keeps in its cache, with renamed and dropped columns."""
    source = folder / "rows.jsonl"
    source.write_text("".join(f'{{"text": "{"word " * (i % 60)}", "ids": [{", ".join(map(str, range(i % 50)))}], "drop": {i}}}\n' for i in range(ROWS)))
    made = datasets.load_dataset("json", data_files=str(source), split="train", cache_dir=str(folder / "hub"))
    return made.rename_column("text", "document").remove_columns("drop")


KINDS = (
    images, images_as_paths, audio, audio_decoded, nested, numbers, selected, shuffled, split, concatenated, tensors, arrays, arrays_with_missing, tables, transformed, missing, loaded,
)  # fmt: skip
