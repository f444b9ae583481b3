"""Finds the lcache program, wherever an installer put it."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator

from ..errors import of_errno


def program() -> str:
    """The path of the lcache program.

    $LCACHE_BIN if set; else the first of: the scripts folder of this Python, the user's (pip install --user), the one that belongs to this package's folder
    (pip install --target, --prefix, and the files of an archive or a system package), and PATH. Raises FileNotFoundError if there is none.
    """
    given = os.environ.get("LCACHE_BIN")
    if given:
        return given
    for folder in _folders():
        found = os.path.join(folder, "lcache")
        if os.path.isfile(found) and os.access(found, os.X_OK):
            return found
    on_path = shutil.which("lcache")
    if on_path is None:
        raise of_errno(errno.ENOENT, "find the lcache program: it is not on PATH; install it, or set LCACHE_BIN to its path")
    return on_path


def _folders() -> Iterator[str]:
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    beside = os.path.dirname(package)
    if sys.executable:
        yield os.path.dirname(sys.executable)  # without links resolved: an environment's python is a link
    yield sysconfig.get_path("scripts")
    yield sysconfig.get_path("scripts", f"{os.name}_user")
    yield os.path.join(beside, "bin")  # --target
    parts = beside.split(os.sep)
    if parts[-1] in ("site-packages", "dist-packages"):
        yield os.path.join(os.sep.join(parts[:-3]), "bin")  # --prefix: PREFIX/lib/pythonX.Y/site-packages
    if parts[-3:] == ["share", "lcache", "python"]:
        yield os.path.join(os.sep.join(parts[:-3]), "bin")  # an archive, a deb or an rpm
