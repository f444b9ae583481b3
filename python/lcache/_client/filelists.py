"""Lists of files: a source KIND:@FILE. FILE has the path of one shard in each line; source/filelist.go says how, and reads the same lists."""

from __future__ import annotations

import hashlib
import os

from .schemes import scheme, without_scheme

_MOST_BYTES = 64 << 20
_MARK = "@"


def list_path(source: str) -> str | None:
    """The path of FILE in a source KIND:@FILE; None for other sources."""
    kind = scheme(source)
    return without_scheme(source)[len(_MARK) :] if kind and source.startswith(_MARK, len(kind)) else None


def absolute(source: str) -> str:
    """The source of shards on this machine, with an absolute path."""
    kind = scheme(source)
    if list_path(source):
        kind += _MARK
    path = source[len(kind) :]
    return kind + os.path.abspath(os.path.expanduser(path)) if path and path != _MARK else source


def list_identity(source: str) -> str:
    """A text that follows from the paths in a list and their order, and not from the name of FILE. For other sources, and if the list can't be read, it is
    the source itself."""
    path = list_path(source)
    if not path:
        return source
    try:
        if not os.path.isfile(path):
            return source
        with open(path, "rb") as f:
            text = f.read(_MOST_BYTES + 1)
    except (OSError, ValueError):
        return source
    at = os.path.abspath(os.path.dirname(os.fsencode(path)))
    lines = (line.removesuffix(b"\r") for line in text.removeprefix(b"\xef\xbb\xbf").split(b"\n"))
    paths = [b"/" + os.path.normpath(os.path.join(at, line)).lstrip(b"/") for line in lines if line]
    if not paths or len(text) > _MOST_BYTES or len(set(paths)) < len(paths):
        return source
    folder = os.path.commonpath([os.path.dirname(p) for p in paths])
    digest = hashlib.sha256(b"".join(p + b"\n" for p in paths)).hexdigest()
    return f"{scheme(source)}{_MARK}{digest}/{os.fsdecode(os.path.basename(folder))}"
