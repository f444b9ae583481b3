"""The list of bad samples that the last check of a source found. It is a file of the user, in the user's cache folder, and not part of a cache."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from ..errors import Error, of_errno
from .cachedirs import cache_home
from .replaced import replaced
from .trust import make_folder, open_file

_MOST = 256 << 20  # bytes of a list


class Checked(NamedTuple):
    """What is kept of the checks of one source."""

    fingerprint: str  # of the source at the last check
    bad: list[str]  # names


def path_of(source: str) -> str:
    """The file for a source: <last name of the source>-<8 hex digits of its whole path>.json."""
    name = re.sub(r"[^\w.-]", "_", os.path.basename(source.rstrip("/")))[:80] or "root"
    digits = hashlib.sha256(source.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return os.path.join(cache_home(), "lcache", "checks", f"{name}-{digits}.json")


def read(source: str) -> Checked | None:
    """The list of a source's last check. None: there was no check. Raises Error for a file that is damaged, or that others could have written."""
    path = path_of(source)
    try:
        text = read_bounded(open_file(path, os.O_RDONLY), path)
    except FileNotFoundError:
        return None
    except Error:
        raise
    except OSError as e:
        raise of_errno(e.errno, f"read {path}, the list of the last check: {e.strerror}") from None
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    bad: Any = document.get("bad") if isinstance(document, dict) and document.get("source") == source else None
    if not isinstance(bad, list) or not all(isinstance(name, str) for name in bad):
        raise Error(f"read {path}, the list of the last check: it is damaged; remove it, and run lcache.torch.check again")
    return Checked(str(document.get("fingerprint")), bad)


def write(source: str, fingerprint: str, bad: Iterable[str]) -> None:
    """Keeps the list of a check. Raises OSError."""
    path = path_of(source)
    make_folder(os.path.dirname(path))
    document = {"schema": 1, "source": source, "fingerprint": fingerprint, "checked_at": time.time(), "bad": sorted(bad)}
    with replaced(path) as f:
        f.write(json.dumps(document, indent=1).encode("ascii"))


def read_bounded(fd: int, path: str) -> bytes:
    """All bytes of a file, which it closes. Raises Error if there are too many for a list of names."""
    with os.fdopen(fd, "rb") as f:
        text = f.read(_MOST + 1)
    if len(text) > _MOST:
        raise Error(f"read {path}: it has more than {_MOST >> 20} MiB, which is too much for a list of names")
    return text
