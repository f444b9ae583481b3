"""The source of a list of files, which is written to the cache's root under a name that follows from its content."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from ..errors import ArgumentError


def source_of(kind: str, paths: Sequence[str], cache: Any) -> str:
    """The source `kind:…` of files with absolute paths, in this order."""
    odd = [path for path in paths if re.search(r"[\[\]{}*?,\\\n]", path)]
    if odd:
        raise ArgumentError(f"{odd[0]!r}: rename")
    if len(paths) == 1:
        return f"{kind}:{paths[0]}"
    folder = os.path.join(os.path.commonpath([os.path.dirname(path) for path in paths]), "")
    return f"{kind}:{folder}{{{','.join(path[len(folder):] for path in paths)}}}"
