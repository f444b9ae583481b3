"""Map-style datasets over an lcache job: bytes come from lcache, everything else is as in torch and torchvision."""

from __future__ import annotations

import io
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch.utils.data

from ..errors import ArgumentError, DecodeError, Error
from ..job import Job, connect
from ..opening import open as open_job
from . import tagged_batch

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # torchvision's


_TELL = 0.05  # seconds of decoding after which the server is told of them: what is told last in an epoch misses less

# Batch sizes that a server may be sized for when nobody has said one yet: a loader comes later than its dataset.
_LIKELY = (256, 32, None)


def _open(source: Any, cache: Any, options: dict[str, Any]) -> Job:
    if options.get("batch_size") is not None or options.get("likely_batch_size") is not None:
        return open_job(source, cache, **options)
    for size in _LIKELY:
        try:
            return open_job(source, cache, likely_batch_size=size, **options)
        except Error as e:
            if size is None or "memory" not in str(e):
                raise  # only batches of large samples are worth another try: they may need more memory than there is
    raise AssertionError


class Sample:
    """What decode gets beside the bytes; unpacks as (index, name, label, parts). The name is looked up when asked for.

    parts is {extension: bytes}, in the order of the extensions; in a dataset without parts the extension is "".
    """

    __slots__ = ("_at", "_batch", "index", "label", "parts")

    def __init__(self, batch: Any, at: int, parts: dict[str, bytes]) -> None:
        self._batch, self._at, self.parts = batch, at, parts
        self.index: int = batch.indices[at]
        self.label: int = batch.labels[at]

    @property
    def name(self) -> str:
        return self._batch.names[self._at]

    def __iter__(self) -> Iterator[Any]:
        return iter((self.index, self.name, self.label, self.parts))

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: Any) -> Any:
        return (self.index, self.name, self.label, self.parts)[i]


class Dataset(torch.utils.data.Dataset):
    """The samples of a source, each made by decode(data: bytes, sample), where data is the first part and sample.parts has all; without decode a sample is (bytes, label).

    The job is lcache.open(source, cache, socket=socket, **options); without a source, the one of the server at socket or $LCACHE_SOCKET. A batch is one
    request, of whichever loader and sampler; copies in workers have connections of their own. It pickles to what it takes to connect again.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | None = None,
        decode: Callable[[bytes, Sample], Any] | None = None,
        *,
        cache: Any = None,
        socket: str | os.PathLike[str] | None = None,
        job: Job | None = None,
        **options: Any,
    ) -> None:
        if job is None:
            if source is not None:
                job = _open(source, cache, {**options, "socket": socket})
            elif options.keys() - {"timeout"}:
                raise ArgumentError(f"{', '.join(sorted(options.keys() - {'timeout'}))}: of use only with a source, and none is given")
            else:
                job = connect(socket, **options)
        if job.on_error != "fail":
            job.close()
            raise ArgumentError(
                f"the server at {job!r} leaves samples that it can't read out of their batches (on_error={job.on_error!r}), and PyTorch needs as many as it"
                " asks for: serve with --on-error fail, and leave out such samples at the source"
            )
        self.job = job
        self.decode = decode
        self.decode_seconds = 0.0  # in this process
        self._told = 0.0  # of them, what the server knows
        self._key = secrets.token_hex(4)  # the same in every copy
        self._length = job.samples
        self._ahead: tuple[Any, dict[int, Any]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in self._derived} | {"decode_seconds": 0.0, "_told": 0.0, "_ahead": None}

    _derived: tuple[str, ...] = ()  # attributes that a copy finds out by itself

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._length} samples, {self.job!r}>"

    @property
    def classes(self) -> list[str]:
        """The names of the labels."""
        return self.job.classes

    @property
    def class_to_idx(self) -> dict[str, int]:
        return {name: label for label, name in enumerate(self.classes)}

    def __getitem__(self, index: int) -> Any:
        index = int(index)
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError(f"sample {index} of {self._length}")
        batch = tagged_batch.iterated()
        part = batch.parts.get(self._key) if batch is not None and batch.parts else None
        if batch is not None and batch.trial:
            batch.saw(self._key, [index])
        if batch is None or part is None or index not in part:
            return self._made([index], None)[0]
        # One of many that are asked for one by one (ConcatDataset): all of them in one request, at the first.
        if self._ahead is None or self._ahead[0] is not batch:
            self._ahead = batch, dict(self._bytes(part, batch.at))
        return self._make(*self._ahead[1][index])

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        plain = [int(i) for i in indices[:]]
        if plain and min(plain) < 0:
            plain = [i + self._length if i < 0 else i for i in plain]
        batch = indices if isinstance(indices, tagged_batch.TaggedBatch) else tagged_batch.iterated()
        if batch is not None and batch.trial:
            batch.saw(self._key, plain)
        return self._made(plain, tagged_batch.position(indices, plain, self._key))

    def _made(self, indices: list[int], at: tagged_batch.At | None) -> list[Any]:
        return [self._make(*entry) for _, entry in self._bytes(indices, at)]

    def _bytes(self, indices: list[int], at: tagged_batch.At | None) -> Iterator[tuple[int, tuple[Any, int, dict[str, bytes]]]]:
        """(index, (batch, position in it, its parts)) of each; no lease is held any more."""
        for batch in self._batches(indices, at):
            copies = [{ext: bytes(view) for ext, view in parts.items()} for parts in batch.parts]
            batch.release()
            for i, parts in enumerate(copies):
                yield batch.indices[i], (batch, i, parts)

    def _batches(self, indices: list[int], at: tagged_batch.At | None) -> list[Any]:
        try:
            return [self.job.get(indices, at=at)]
        except ArgumentError:
            if len(indices) < 2 or max(indices) >= self._length or min(indices) < 0:
                raise
            # More bytes than the server lets out at once: it was started without knowing this batch size.
            half = len(indices) // 2
            return self._batches(indices[:half], None) + self._batches(indices[half:], None)

    def _make(self, batch: Any, i: int, parts: dict[str, bytes]) -> Any:
        began = time.perf_counter()
        try:
            return self._decoded(parts, batch, i)
        except Error:
            raise  # the server's, asked for a name
        except Exception as e:
            raise self._undecodable(batch.indices[i], e) from e
        finally:
            self.decode_seconds += time.perf_counter() - began
            if self.decode_seconds >= self._told + _TELL:
                self.job.report(decode=self.decode_seconds - self._told)
                self._told = self.decode_seconds

    def _undecodable(self, index: int, error: Exception) -> DecodeError:
        name, source, cause = None, self.job.source, f"{type(error).__name__}: {error}"
        try:
            name = self.job.names([index])[0]
        except Error:
            pass  # the index says enough
        which = f"sample {index}" if name is None else f"sample {index}, {name!r},"
        return DecodeError(f"{which} of {source} can't be decoded: {cause}", index, name, source, cause)

    def _decoded(self, parts: dict[str, bytes], batch: Any, i: int) -> Any:
        data = _first(parts)
        if self.decode is None:
            return data, batch.labels[i]
        return self.decode(data, Sample(batch, i, parts))


def _first(parts: dict[str, bytes]) -> bytes:
    return next(iter(parts.values()))


def pil(data: bytes) -> Any:
    """torchvision's default loader, from bytes: an RGB image of PIL."""
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        return image.convert("RGB")


class ImageFolder(Dataset):
    """torchvision.datasets.ImageFolder with its samples in lcache: the same classes, indices, labels and images.

    loader makes an image of a sample's bytes (torchvision's takes a path). Needs PIL, and torchvision only for what transform uses of it.
    """

    _derived = ("_samples",)

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        loader: Callable[[bytes], Any] = pil,
        *,
        cache: Any = None,
        socket: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        if options.get("labels") is not None:
            raise TypeError("the labels of an ImageFolder are its folders: use lcache.torch.Dataset with labels=")
        if root is not None:
            options.setdefault("ext", IMG_EXTENSIONS)
        super().__init__(root, cache=cache, socket=socket, **options)
        self.root = os.path.expanduser(os.fspath(root)) if root is not None else self.job.source
        self.transform, self.target_transform, self.loader = transform, target_transform, loader

    def _decoded(self, parts: dict[str, bytes], batch: Any, i: int) -> Any:
        image, target = self.loader(_first(parts)), batch.labels[i]
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target

    @property
    def samples(self) -> list[tuple[str, int]]:
        """(path, label) of every sample, as torchvision's; asked of the server at the first use."""
        known: list[tuple[str, int]] | None = self.__dict__.get("_samples")
        if known is None:
            labels = self.class_to_idx
            names = self.job.names(range(self._length))
            known = [(os.path.join(self.root, name), labels.get(name.split("/", 1)[0], 0)) for name in names]
            self.__dict__["_samples"] = known
        return known

    imgs = samples

    @property
    def targets(self) -> list[int]:
        return [label for _, label in self.samples]
