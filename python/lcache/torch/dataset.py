"""Map-style datasets over an lcache job. The samples' bytes come from lcache; everything else is as in torch and torchvision."""

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
from .tagged_batch import Position

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # torchvision's

_REPORT = 0.05  # seconds of decoding between two reports to the server: an epoch ends with at most that much unreported

# Batch sizes that a new server's memory is sized for, one after the other: the dataset is made before its loader, which has the batch size.
_LIKELY_BATCH_SIZES = (256, 32, None)


def _open(source: Any, cache: Any, options: dict[str, Any]) -> Job:
    """lcache.open, with smaller likely batch sizes where memory is short."""
    if options.get("batch_size") is not None or "likely_batch_size" in options:
        return open_job(source, cache, **options)
    for size in _LIKELY_BATCH_SIZES:
        try:
            return open_job(source, cache, likely_batch_size=size, **options)
        except Error as e:
            if size is None or "memory" not in str(e):
                raise  # a smaller batch size helps only against too little memory, which large samples may need
    raise AssertionError


class Sample:
    """The second argument of decode. It unpacks as (index, name, label, parts).

    index is the dataset index. name is the path below the source, requested from the server at the first use. label is an int. parts is
    {extension: bytes}, in the order of the extensions; in a dataset without parts the extension is "".
    """

    __slots__ = ("_at", "_batch", "index", "label", "parts")

    def __init__(self, batch: Any, at: int, parts: dict[str, bytes]) -> None:
        self._batch, self._at, self.parts = batch, at, parts
        self.index: int = batch.indices[at]
        self.label: int = batch.labels[at]

    @property
    def name(self) -> str:
        return str(self._batch.names[self._at])

    def __iter__(self) -> Iterator[Any]:
        return iter((self.index, self.name, self.label, self.parts))

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: Any) -> Any:
        return (self.index, self.name, self.label, self.parts)[i]


class Dataset(torch.utils.data.Dataset):
    """A map-style dataset of a source's samples, each made by decode(data: bytes, sample: Sample).

    data is the sample's first part; sample.parts has all parts. Without decode a sample is (bytes, label). The job is
    lcache.open(source, cache, socket=socket, **options); without a source, the job of the server at socket or $LCACHE_SOCKET. Any loader and
    sampler may be used, and each batch is one request. Copies in worker processes have connections of their own. The dataset pickles to the
    little that a new connection needs.

    Raises the errors of lcache.open, and ArgumentError for a server that skips samples it can't read. Access raises IndexError, SampleError or
    DecodeError.
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
        self._reported = 0.0  # decode_seconds that the server was told of
        self.lcache_id = secrets.token_hex(4)  # the same in every copy, such as those in workers
        self._length = job.samples
        self._ahead: tuple[Any, dict[int, Any]] | None = None  # a tagged batch, and its samples by index, for access one by one

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in self._derived} | {"decode_seconds": 0.0, "_reported": 0.0, "_ahead": None}

    _derived: tuple[str, ...] = ()  # attributes that a copy derives again

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._length} samples, {self.job!r}>"

    @property
    def classes(self) -> list[str]:
        """The names of the labels: classes[label]."""
        return self.job.classes

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The labels, by name."""
        return {name: label for label, name in enumerate(self.classes)}

    def __getitem__(self, index: int) -> Any:
        index = int(index)
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError(f"sample {index} of {self._length}")
        batch = tagged_batch.last_iterated()
        part = batch.parts.get(self.lcache_id) if batch is not None and batch.parts else None
        if batch is not None and batch.trial:
            batch.record_asked(self.lcache_id, [index])
        if batch is None or part is None or index not in part:
            return self._made([index], None)[0]
        # ConcatDataset asks for a batch's samples one by one: the first of them requests them all.
        if self._ahead is None or self._ahead[0] is not batch:
            self._ahead = batch, dict(self._bytes(part, batch.at))
        return self._make(*self._ahead[1][index])

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        plain = [int(i) for i in indices[:]]
        if plain and min(plain) < 0:
            plain = [i + self._length if i < 0 else i for i in plain]
        batch = indices if isinstance(indices, tagged_batch.TaggedBatch) else tagged_batch.last_iterated()
        if batch is not None and batch.trial:
            batch.record_asked(self.lcache_id, plain)
        return self._made(plain, tagged_batch.position_of(indices, plain, self.lcache_id))

    def _made(self, indices: list[int], at: Position | None) -> list[Any]:
        """The decoded samples of one batch."""
        return [self._make(*entry) for _, entry in self._bytes(indices, at)]

    def _bytes(self, indices: list[int], at: Position | None) -> Iterator[tuple[int, tuple[Any, int, dict[str, bytes]]]]:
        """Yields (index, (batch, place in the batch, parts)) for each sample. The bytes are copies, and the leases have ended."""
        for batch in self._batches(indices, at):
            copies = [{ext: bytes(view) for ext, view in parts.items()} for parts in batch.parts]
            batch.release()
            for i, parts in enumerate(copies):
                yield batch.indices[i], (batch, i, parts)

    def _batches(self, indices: list[int], at: Position | None) -> list[Any]:
        """The samples in one batch, or in several where the server lends less than one batch needs."""
        try:
            return [self.job.get(indices, at=at)]
        except ArgumentError:
            if len(indices) < 2 or max(indices) >= self._length or min(indices) < 0:
                raise
            # The batch has more bytes than the server lends at once: it was started without this batch size.
            half = len(indices) // 2
            return self._batches(indices[:half], None) + self._batches(indices[half:], None)

    def _make(self, batch: Any, i: int, parts: dict[str, bytes]) -> Any:
        """Decodes sample i of a batch, and counts the time. Raises DecodeError for an exception of decode, loader or a transform."""
        began = time.perf_counter()
        try:
            return self._decoded(parts, batch, i)
        except Error:
            raise  # from the server, when decode used a name
        except Exception as e:
            raise self._undecodable(batch.indices[i], e) from e
        finally:
            self.decode_seconds += time.perf_counter() - began
            if self.decode_seconds >= self._reported + _REPORT:
                self.job.report(decode=self.decode_seconds - self._reported)
                self._reported = self.decode_seconds

    def _undecodable(self, index: int, error: Exception) -> DecodeError:
        name, source, cause = None, self.job.source, f"{type(error).__name__}: {error}"
        try:
            name = self.job.names([index])[0]
        except Error:
            pass  # the error has the index
        which = f"sample {index}" if name is None else f"sample {index}, {name!r},"
        return DecodeError(f"{which} of {source} can't be decoded: {cause}", index, name, source, cause)

    def _decoded(self, parts: dict[str, bytes], batch: Any, i: int) -> Any:
        """What decode makes of sample i of a batch."""
        data = _first(parts)
        if self.decode is None:
            return data, batch.labels[i]
        return self.decode(data, Sample(batch, i, parts))


def _first(parts: dict[str, bytes]) -> bytes:
    return next(iter(parts.values()))


def pil(data: bytes) -> Any:
    """Decodes as torchvision's default loader does: an RGB image of PIL."""
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        return image.convert("RGB")


class ImageFolder(Dataset):
    """torchvision.datasets.ImageFolder over lcache: the same classes, indices, labels and images.

    loader makes an image of a sample's bytes, while torchvision's takes a path. The default loader needs PIL. torchvision is needed only for
    transforms.
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
        """(path, label) of every sample, as in torchvision. Requested from the server at the first use."""
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
        """The label of every sample."""
        return [label for _, label in self.samples]
