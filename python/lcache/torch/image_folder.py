"""torchvision's ImageFolder over lcache."""

from __future__ import annotations

import io
import os
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .._client.options import arguments
from ..errors import printable
from ..job import Job
from .class_folders import no_class_folder, of_folders, of_paths, require_class_folder, require_one_label, same_label
from .dataset import Dataset
from .fetched import of_thread
from .fixed_lists import KEPT, fixed
from .sample import first_part
from .torchvisions import StandardTransform, is_overridden

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # torchvision's


def pil(data: bytes) -> Any:
    """Decodes as torchvision's default loader does: an RGB image of PIL."""
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        return image.convert("RGB")


# Alternatives to edits, and to arguments that only torchvision takes.
_SAMPLES = (
    "use torch.utils.data.Subset(dataset, indices) for a part of the samples; is_valid_file= and a subclass's find_classes or make_dataset choose them when "
    "the dataset is made"
)
_TARGETS = "give target_transform=, or a subclass with find_classes or make_dataset, for other labels"
_NO_LOADER = "in torchvision it is a function of a path, but lcache has the bytes of a file: give decode=, a function of bytes"
_CLASSES = "a subclass's find_classes returns other classes and labels; target_transform= changes labels"


class ImageFolder(Dataset[Any]):
    """torchvision.datasets.ImageFolder over lcache: the same classes, indices, labels and images.

    decode makes an image from a sample's bytes; the default needs PIL. torchvision's loader= takes a path instead, and is refused. transforms is a
    function of (image, label), an alternative to transform and target_transform. extensions, is_valid_file, allow_empty, and the methods find_classes and
    make_dataset of a subclass choose samples and labels as in torchvision. torchvision is needed only for transforms. If it is installed, the dataset is
    also an instance of its ImageFolder. With return_index=True a sample is (image, label, index), where index is the job's, for job.observe. bad= is that of
    Dataset. The other keyword arguments are those of lcache.open.

    Raises the errors of torchvision: FileNotFoundError for a source without class folders (flat=True allows that: one list with label 0) and for a class
    without a file, ValueError for arguments that exclude each other.
    """

    _derived = (*Dataset._derived, "_labels", "_label_at", "_index_at")

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
        cluster: str | None = None,
        cluster_key: str | os.PathLike[str] | None = None,
        return_index: bool = False,
        bad: str | os.PathLike[str] | None = None,
    ) -> None:
        given = arguments(locals())
        if loader is not None:
            raise TypeError(f"ImageFolder(loader=…): {_NO_LOADER}")
        if labels is not None:
            raise TypeError("ImageFolder(labels=…): its labels are its folders; use lcache.torch.Dataset with labels=")
        if transforms is not None and (transform is not None or target_transform is not None):
            raise ValueError("Only transforms or transform/target_transform can be passed as argument")
        if extensions is not None and ext is not None:
            raise ValueError("extensions= and ext= are two names of one argument: give only one")
        extensions = ext if extensions is None else extensions
        if extensions is not None and is_valid_file is not None:
            raise ValueError("Both extensions and is_valid_file cannot be None or not None at the same time")
        if root is not None and extensions is None and is_valid_file is None:
            extensions = IMG_EXTENSIONS
        if type(self).loader is not ImageFolder.loader:
            raise TypeError(f"{type(self).__name__}.loader: {_NO_LOADER}")
        own_classes, own_samples = is_overridden(self, "find_classes"), is_overridden(self, "make_dataset")
        if root is not None and not flat and not isinstance(job, Job) and not own_classes:
            require_class_folder(os.path.expanduser(os.fspath(root)))
        picks = is_valid_file is not None or own_classes or own_samples  # empty classes are found later
        options = {**given, "allow_empty": allow_empty or picks, "ext": () if extensions is None else extensions}
        super().__init__(root, return_index=return_index, **options)
        self.root = os.path.expanduser(os.fspath(root)) if root is not None else self.job.source
        self.transform, self.target_transform, self.transforms = transform, target_transform, transforms
        if transform is not None or target_transform is not None:
            self.transforms = StandardTransform(transform, target_transform)
        if decode is not pil or not hasattr(type(self), "decode"):  # otherwise it is a subclass's method
            self.decode = decode
        self.extensions, self.is_valid_file = extensions, is_valid_file
        self._given_labels: list[Any] | None = None  # the label of each sample; None: the labels of the classes
        classes, class_to_idx = self.find_classes(self.root)
        self._given_classes = (classes, class_to_idx) if own_classes else None  # None: the job's
        self._label_of = self._relabelled()
        if own_samples:
            listed = self.make_dataset(self.root, class_to_idx=class_to_idx, extensions=extensions, is_valid_file=is_valid_file, allow_empty=allow_empty)
            names = self.job.names(range(self._length))
            self._keep_pairs(names, of_paths(names, self.root, listed, f"{type(self).__name__}.make_dataset"))
        else:
            nested = any("/" in name for name in self.class_to_idx)
            if nested or is_valid_file is not None or self._label_of is not None:
                self._keep(is_valid_file, nested)
            if not allow_empty:  # make_dataset decides itself which classes may be empty
                self._require_samples()
        if bad is not None:
            self._leave_out(bad)  # a class whose samples are all bad keeps its label

    # Classes.

    def find_classes(self, directory: str) -> tuple[list[str], dict[str, int]]:
        """The classes and labels of the source's folders. A subclass may return a part of the classes, or other labels, as in torchvision."""
        classes, listing = self.job.classes, self.job.info.listing
        if not classes and listing and not listing.get("flat") and not any(self._job_labels()):
            raise no_class_folder(directory)
        return list(classes), {name: label for label, name in enumerate(classes)}

    def _relabelled(self) -> list[Any] | None:
        """This dataset's label for each of the job's labels; None: not a class of this dataset. Returns None if all labels are the job's."""
        if not self.class_to_idx and self.job.classes:
            raise ValueError("'class_to_index' must have at least one entry to collect any samples.")
        labels = [self.class_to_idx.get(name) for name in self.job.classes]
        return None if all(map(same_label, labels, range(len(labels)))) else labels

    def _keep(self, is_valid_file: Callable[[str], bool] | None, nested: bool) -> None:
        """Keeps the samples of this dataset's classes that is_valid_file accepts. nested: classes are folders within folders."""
        labels, table = self._job_labels(), self._label_of
        names = self.job.names(range(self._length)) if nested or is_valid_file is not None else []
        if nested:
            pairs = of_folders(names, self.class_to_idx)
            self._keep_pairs(names, [p for p in pairs if is_valid_file is None or is_valid_file(os.path.join(self.root, names[p[0]]))])
            return
        kept: Iterable[int] = range(self._length) if table is None else (i for i, label in enumerate(labels) if table[label] is not None)
        if is_valid_file is not None:
            kept = (i for i in kept if is_valid_file(os.path.join(self.root, names[i])))
        self.lcache_kept = array("I", kept)
        self._length = len(self.lcache_kept)

    def _keep_pairs(self, names: Sequence[str], pairs: Sequence[tuple[int, Any]]) -> None:
        """Keeps the samples of the pairs (the job's index, label), in this order. names has the name of every sample of the job."""
        require_one_label(names, pairs)
        labels, table = self._job_labels(), self._label_of
        if not all(same_label(label, labels[index] if table is None else table[labels[index]]) for index, label in pairs):
            self._given_labels = [label for _, label in pairs]
        kept = array("I", (index for index, _ in pairs))
        if self._given_labels is not None or kept != array("I", range(self._length)):
            self.lcache_kept, self._length = kept, len(kept)

    def _keep_only(self, stay: Sequence[int]) -> None:
        super()._keep_only(stay)
        if self._given_labels is not None:
            self._given_labels = [self._given_labels[i] for i in stay]
        self.__dict__.pop(KEPT, None)  # lists that were made before

    def _require_samples(self) -> None:
        """Raises FileNotFoundError if a class has no sample."""
        if not self.classes:
            return  # a flat source
        found = set(self.targets) if self.lcache_kept is not None else set(self._job_labels())
        empty = sorted(name for name, label in self.class_to_idx.items() if label not in found)
        if empty:
            text = f"Found no valid file for the classes {printable(', '.join(empty))}. "
            if self.extensions is not None:
                text += f"Supported extensions are: {self.extensions if isinstance(self.extensions, str) else ', '.join(self.extensions)}"
            raise FileNotFoundError(text)

    @fixed(_CLASSES)
    def classes(self) -> list[str]:
        """The names of the classes."""
        return list(self.job.classes if self._given_classes is None else self._given_classes[0])

    @fixed(_CLASSES)
    def class_to_idx(self) -> dict[str, int]:
        """The labels, by class name."""
        return {name: label for label, name in enumerate(self.job.classes)} if self._given_classes is None else dict(self._given_classes[1])

    # Samples.

    @property
    def loader(self) -> Callable[[Any], Any]:
        """Makes an image from a path, as torchvision's loader does. The bytes of samples come from lcache; any other file is opened."""
        return self._load

    @loader.setter
    def loader(self, _: Any) -> None:
        raise AttributeError(f"{type(self).__name__}.loader can't be set: {_NO_LOADER}")

    def _load(self, path: Any) -> Any:
        if isinstance(path, bytes):
            return self.decode(path)
        prefix, text = os.path.join(self.root, ""), os.fspath(path)
        index = self._index_of(text[len(prefix) :]) if text.startswith(prefix) else None
        if index is None:
            with open(path, "rb") as f:
                return self.decode(f.read())
        data = first_part(self._entry(index)[3])
        try:
            return self.decode(data)
        except Exception as e:
            raise self._undecodable(index, e) from e

    def _index_of(self, name: str) -> int | None:
        """The job's index of the sample with a name; None: none has it. For a sample of the current batch, all names of the batch are requested at once."""
        fetched = of_thread(self.lcache_id)
        if fetched is not None and fetched.again:
            index = fetched.index_of(name, lambda entry: entry[1].names[entry[2]])
            if index is not None:
                return index
        known: dict[str, int] | None = self.__dict__.get("_index_at")
        if known is None:
            known = self.__dict__["_index_at"] = {name: index for index, name in enumerate(self.job.names(range(self.job.samples)))}
        return known.get(name)

    def _decoded(self, parts: dict[str, bytes], batch: Any, i: int) -> Any:
        image, target = self.decode(first_part(parts)), self._target(batch, i)
        if self.transforms is not None and not isinstance(self.transforms, StandardTransform):
            return self.transforms(image, target)
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target

    def _target(self, batch: Any, i: int) -> Any:
        """The label of sample i of a batch."""
        if self._given_labels is None:
            return batch.labels[i] if self._label_of is None else self._label_of[batch.labels[i]]
        known: dict[int, Any] | None = self.__dict__.get("_label_at")
        if known is None:
            known = self.__dict__["_label_at"] = dict(zip(self.lcache_kept or (), self._given_labels))
        return known[batch.indices[i]]

    def _job_labels(self) -> array[int]:
        """The label of each of the job's samples, requested from the server at the first use."""
        known: array[int] | None = self.__dict__.get("_labels")
        if known is None:
            known = self.__dict__["_labels"] = self.job.labels()
        return known

    @fixed(_TARGETS)
    def targets(self) -> list[int]:
        """The label of every sample: one list, made at the first use."""
        if self._given_labels is not None:
            return list(self._given_labels)
        labels, table = self._job_labels(), self._label_of
        here = labels if self.lcache_kept is None else [labels[i] for i in self.lcache_kept]
        return list(here) if table is None else [table[label] for label in here]

    @fixed(_SAMPLES)
    def samples(self) -> list[tuple[str, int]]:
        """(path, label) of every sample, as in torchvision: one list, made at the first use."""
        names = self.job.names(range(self._length) if self.lcache_kept is None else self.lcache_kept)
        prefix = os.path.join(self.root, "")
        return [(prefix + name, label) for name, label in zip(names, self.targets)]

    @fixed(_SAMPLES)
    def imgs(self) -> list[tuple[str, int]]:
        """Another name of samples, as in torchvision's ImageFolder."""
        return self.samples
