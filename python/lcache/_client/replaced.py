"""Files that are replaced as a whole: other processes see the old content or the new one."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import IO


@contextlib.contextmanager
def replaced(path: str) -> Iterator[IO[bytes]]:
    """A new file that only this user can read, which replaces path at the end. After an error nothing is left of it, and path is as before."""
    fd, made = tempfile.mkstemp(prefix=os.path.basename(path) + ".", dir=os.path.dirname(path))
    try:
        with os.fdopen(fd, "wb") as f:
            yield f
        os.replace(made, path)
    except BaseException:
        os.unlink(made)
        raise
