"""Checks that there are class folders, and finds the samples that a subclass of ImageFolder chooses by nested folders or by a list of paths."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .._client.first_open import SHARDS
from .._client.match import is_url
from ..errors import ArgumentError, printable


def no_class_folder(directory: str, shards: str = "") -> FileNotFoundError:
    """torchvision's error, with advice. shards: the ending of the names of tar shards in the directory; "": there are none."""
    advice = "Give the folder above, or flat=True for one list with label 0."
    if shards:
        advice = f"It has tar shards: use lcache.torch.Dataset({f'tar:{directory}/*{shards}'!r}) to read the samples in them."
    return FileNotFoundError(f"Couldn't find any class folder in {printable(directory)}. {printable(advice)}")


def require_class_folder(directory: str) -> None:
    """Raises FileNotFoundError for a directory without folders, before a cache is made for it. If it can't be listed, lcache.open reports that."""
    if is_url(directory):
        return
    shards = ""
    try:
        with os.scandir(directory) as found:
            for entry in found:
                if entry.is_dir():
                    return
                shards = next((end for end in SHARDS if entry.name.endswith(end)), shards)
    except OSError:
        return
    raise no_class_folder(directory, shards)


def of_folders(names: Sequence[str], class_to_idx: Mapping[str, Any]) -> list[tuple[int, Any]]:
    """(index, label) of the samples in the classes' folders, in torchvision's order. names are the samples' paths below the source."""
    found: dict[str, list[int]] = {folder: [] for folder in class_to_idx}
    for index, name in enumerate(names):
        at = name.find("/")
        while at >= 0:
            if name[:at] in found:
                found[name[:at]].append(index)
            at = name.find("/", at + 1)
    return [(index, class_to_idx[folder]) for folder in sorted(found) for index in found[folder]]


def of_paths(names: Sequence[str], root: str, listed: Iterable[tuple[Any, Any]], who: str) -> list[tuple[int, Any]]:
    """(index, label) for each (path, label). who names their origin. Raises ArgumentError for a path that is not a sample's."""
    number, prefix, found = {name: index for index, name in enumerate(names)}, os.path.join(root, ""), []
    for path, label in listed:
        text = os.fspath(path)
        index = number.get(text[len(prefix) :]) if text.startswith(prefix) else None
        if index is None:
            index = number.get(os.path.relpath(text, root))
        if index is None:
            raise ArgumentError(
                f"{who} lists {text!r}, which is not among the {len(names)} samples of {printable(root)}: give extensions= that include it, "
                "and as root= the folder that has all files"
            )
        found.append((index, label))
    return found


def same_label(one: Any, other: Any) -> bool:
    """Whether two labels are the same for a program: 0 and 0.0 are not. An array is only the same as itself."""
    if one is other:
        return True
    try:
        return type(one) is type(other) and bool(one == other)
    except (ValueError, RuntimeError):  # from arrays and tensors with several elements
        return False


def require_one_label(names: Sequence[str], pairs: Iterable[tuple[int, Any]]) -> None:
    """Raises ArgumentError for a sample with two labels, because lcache keeps one label for each file."""
    given: dict[int, Any] = {}
    for index, label in pairs:
        if not same_label(given.setdefault(index, label), label):
            labels = f"{given[index]!r} and {label!r}"
            raise ArgumentError(f"{names[index]!r} is listed with the labels {labels}: list each file once, and make other labels in __getitem__")
