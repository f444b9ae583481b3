"""torchvision's ImageFolder over lcache."""

from __future__ import annotations

import io
import os
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..errors import printable
from ..job import Job
from ..match import is_url
from .dataset import Dataset, first_part

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # torchvision's


def pil(data: bytes) -> Any:
    """Decodes as torchvision's default loader does: an RGB image of PIL."""
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        return image.convert("RGB")


def _no_class_folder(directory: str) -> FileNotFoundError:
    """torchvision's error, with advice."""
    return FileNotFoundError(f"Couldn't find any class folder in {printable(directory)}. Give the folder above, or flat=True for one list with label 0.")


def _require_class_folder(directory: str) -> None:
    """FileNotFoundError for a directory without folders, before a cache is made for it. lcache.open reports what can't be listed."""
    if is_url(directory):
        return
    try:
        with os.scandir(directory) as found:
            if any(entry.is_dir() for entry in found):
                return
    except OSError:
        return
    raise _no_class_folder(directory)


class ImageFolder(Dataset[Any]):
    """torchvision.datasets.ImageFolder over lcache: the same classes, indices, labels and images.

    decode makes an image of a sample's bytes; the default needs PIL. torchvision's loader= takes a path instead, and is refused. transforms is
    a function of (image, label), instead of transform and target_transform. extensions, is_valid_file, allow_empty and a find_classes method of a
    subclass choose samples and labels as torchvision's do. torchvision is needed only for transforms. return_index=True makes a sample (image, label,
    index), with the job's index of the sample, as job.observe takes it. Other keywords are lcache.open's.

    Raises what torchvision raises: FileNotFoundError for a source without class folders (flat=True allows that: one list with label 0) and for a class
    without a file, ValueError for arguments that exclude each other.
    """

    _derived = ("_paths", "_labels", "_targets")

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        loader: None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
        *,
        decode: Callable[[bytes], Any] = pil,
        transforms: Callable[[Any, Any], Any] | None = None,
        extensions: str | Iterable[str] | None = None,
        cache: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
        socket: str | os.PathLike[str] | None = None,
        job: Job | str | None = None,
        recipe: str | None = None,
        seed: int | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        world_size: int | None = None,
        rank: int | None = None,
        drop_last: bool | None = None,
        params: Mapping[str, Any] | None = None,
        budget: int | str | None = None,
        memory: int | str | None = None,
        ext: str | Iterable[str] | None = None,
        flat: bool = False,
        group: str | None = None,
        labels: None = None,
        follow_links: bool | None = None,
        s3: Mapping[str, Any] | None = None,
        on_error: str | None = None,
        timeout: float | None = None,
        likely_batch_size: int | None = None,
        part: str | None = None,
        stream: bool = False,
        return_index: bool = False,
    ) -> None:
        if loader is not None:
            raise TypeError("ImageFolder(loader=…) is a function of a path in torchvision, and lcache has a file's bytes: give decode=, a function of bytes")
        if labels is not None:
            raise TypeError("the labels of an ImageFolder are its folders: use lcache.torch.Dataset with labels=")
        if transforms is not None and (transform is not None or target_transform is not None):
            raise ValueError("Only transforms or transform/target_transform can be passed as argument")
        if extensions is not None and ext is not None:
            raise ValueError("extensions= and ext= are two names of one argument: give one of them")
        extensions = ext if extensions is None else extensions
        if extensions is not None and is_valid_file is not None:
            raise ValueError("Both extensions and is_valid_file cannot be None or not None at the same time")
        if root is not None and extensions is None and is_valid_file is None:
            extensions = IMG_EXTENSIONS
        if root is not None and not flat and not isinstance(job, Job) and type(self).find_classes is ImageFolder.find_classes:
            _require_class_folder(os.path.expanduser(os.fspath(root)))
        picks = is_valid_file is not None or type(self).find_classes is not ImageFolder.find_classes  # which classes have no sample shows later
        super().__init__(
            root, allow_empty=allow_empty or picks, cache=cache, socket=socket, job=job, recipe=recipe, seed=seed, epochs=epochs, batch_size=batch_size,
            world_size=world_size, rank=rank, drop_last=drop_last, params=params, budget=budget, memory=memory, ext=() if extensions is None else extensions,
            flat=flat, group=group, follow_links=follow_links, s3=s3, on_error=on_error, timeout=timeout,
            likely_batch_size=likely_batch_size, part=part, stream=stream, return_index=return_index,
        )
        self.root = os.path.expanduser(os.fspath(root)) if root is not None else self.job.source
        self.transform, self.target_transform, self.transforms = transform, target_transform, transforms
        self.decode = self.loader = decode
        self.extensions, self.is_valid_file = extensions, is_valid_file
        self._classes, self._class_to_idx = self.find_classes(self.root)
        self._label_of = self._relabelled()
        if is_valid_file is not None or self._label_of is not None:
            self._keep(is_valid_file)
        if not allow_empty:
            self._require_samples()

    # Classes.

    def find_classes(self, directory: str) -> tuple[list[str], dict[str, int]]:
        """The classes and their labels, those of the source's folders. A subclass may return some of them, or other labels, as in torchvision."""
        classes, listing = self.job.classes, self.job.info.listing
        if not classes and listing and not listing.get("flat") and not any(self._job_labels()):
            raise _no_class_folder(directory)
        return list(classes), {name: label for label, name in enumerate(classes)}

    def _relabelled(self) -> list[int | None] | None:
        """By the job's label, the label here; None: not a class here. None for all: the labels are the job's."""
        labels = [self._class_to_idx.get(name) for name in self.job.classes]
        if not self._class_to_idx and self.job.classes:
            raise ValueError("'class_to_index' must have at least one entry to collect any samples.")
        return None if labels == list(range(len(labels))) else labels

    def _keep(self, is_valid_file: Callable[[str], bool] | None) -> None:
        """Keeps the samples of this dataset's classes that is_valid_file accepts."""
        labels, table = self._job_labels(), self._label_of
        kept: Iterable[int] = range(self._length) if table is None else (i for i, label in enumerate(labels) if table[label] is not None)
        if is_valid_file is not None:
            names = self.job.names(range(self._length))
            kept = (i for i in kept if is_valid_file(os.path.join(self.root, names[i])))
        self.kept = array("I", kept)
        self._length = len(self.kept)

    def _require_samples(self) -> None:
        """FileNotFoundError if a class has no sample."""
        if not self._classes:
            return  # a flat source
        found = set(self.targets) if self.kept is not None else set(self._job_labels())
        empty = sorted(name for name, label in self._class_to_idx.items() if label not in found)
        if empty:
            text = f"Found no valid file for the classes {printable(', '.join(empty))}. "
            if self.extensions is not None:
                text += f"Supported extensions are: {self.extensions if isinstance(self.extensions, str) else ', '.join(self.extensions)}"
            raise FileNotFoundError(text)

    @property
    def classes(self) -> list[str]:
        """The names of the classes."""
        return self._classes

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The labels, by class name."""
        return self._class_to_idx

    # Samples.

    def _decoded(self, parts: dict[str, bytes], batch: Any, i: int) -> Any:
        image, target = self.loader(first_part(parts)), batch.labels[i]
        if self._label_of is not None:
            target = self._label_of[target]
        if self.transforms is not None:
            return self.transforms(image, target)
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target

    def _job_labels(self) -> array[int]:
        """The label of each of the job's samples, requested from the server at the first use."""
        known: array[int] | None = self.__dict__.get("_labels")
        if known is None:
            known = self.__dict__["_labels"] = self.job.labels()
        return known

    @property
    def targets(self) -> list[int]:
        """The label of every sample: one list, made at the first use."""
        known: list[int] | None = self.__dict__.get("_targets")
        if known is None:
            labels, table = self._job_labels(), self._label_of
            here = labels if self.kept is None else [labels[i] for i in self.kept]
            known = list(here) if table is None else [table[label] for label in here]  # type: ignore[misc]
            self.__dict__["_targets"] = known
        return known

    @property
    def samples(self) -> list[tuple[str, int]]:
        """(path, label) of every sample, as in torchvision: one list, made at the first use."""
        known: list[tuple[str, int]] | None = self.__dict__.get("_paths")
        if known is None:
            names = self.job.names(range(self._length) if self.kept is None else self.kept)
            prefix = os.path.join(self.root, "")
            known = [(prefix + name, label) for name, label in zip(names, self.targets)]
            self.__dict__["_paths"] = known
        return known

    imgs = samples
