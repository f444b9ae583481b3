"""Sources that are written into the folder of their cache: the index of rows that a program gives to lcache.open(ranges=rows), and a list of files.

The folder's name follows from the content: the same rows have the same cache, and other rows have another one. An index names files below its own folder.
So a link to the root of the file system is put into the folder, and stands in front of their paths.
"""

from __future__ import annotations

import contextlib
import fcntl
import filecmp
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ._client.cache_lock import NewFolder
from ._client.cachedirs import roots
from ._client.replaced import replaced
from ._client.trust import make_folder, open_file, require_folder
from .errors import ArgumentError, of_errno
from .index import write_rows

INDEX, LINK, LIST = "lcache-index.tsv", "lcache-files", "lcache-list"  # also in cachedir.go: lcache ls counts the files, and lcache rm removes them


class WrittenSource(NamedTuple):
    """A source that was written into the folder of its cache, which is in dirs."""

    text: str
    dirs: tuple[str, ...]

    def __fspath__(self) -> str:
        return self.text

    def discard(self) -> None:
        """Removes the files and the folder, unless there is a cache, or another process makes one."""
        folder = self.dirs[0]
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            with contextlib.suppress(FileNotFoundError):
                lock = held.enter_context(os.fdopen(open_file(os.path.join(folder, "open.lock"), os.O_RDWR), "rb+"))
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.lexists(os.path.join(folder, "job.json")):
                return
            for name in (INDEX, LINK, LIST, "open.lock"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(folder, name))
            os.rmdir(folder)


@contextlib.contextmanager
def discarded_on_error(source: Any) -> Iterator[None]:
    """Within it a cache of the source is opened. If that fails, nothing of a written source is left behind."""
    try:
        yield
    except BaseException:
        if isinstance(source, WrittenSource):
            source.discard()
        raise


def written_list(kind: str, paths: Sequence[str], cache: Any, flags: Sequence[str]) -> WrittenSource | str:
    """The source of files with absolute paths, in this order: KIND:PATH for one, otherwise KIND:@FILE. flags are those of its listing."""
    if len(paths) == 1 and not set(paths[0]) & set("[]{}*?\\,@"):
        return f"{kind}:{paths[0]}"
    odd = next((path for path in paths if "\n" in path or path.endswith("\r")), None)
    if odd is not None:
        raise ArgumentError(f"open {odd!r}: a list of files can't have a path with the end of a line: rename it")
    dirs = roots(cache)
    text = "".join(f"{path}\n" for path in paths).encode("utf-8", "surrogateescape")
    if os.path.lexists(os.path.join(dirs[0], "job.json")):
        if not _has(os.path.join(dirs[0], LIST), text):
            raise ArgumentError(f"{dirs[0]} is the cache of other files, or of another source: give another cache=")
        return WrittenSource(f"{kind}:@{os.path.join(dirs[0], LIST)}", dirs)
    name = re.sub(r"[^\w.-]", "_", os.path.basename(os.path.dirname(paths[0])))[:80] or "root"
    digits = hashlib.sha256(b"\0".join([text, *map(os.fsencode, flags)])).hexdigest()[:8]
    dirs = tuple(os.path.join(root, f"{name}-{digits}") for root in dirs)
    made = os.path.join(dirs[0], LIST)
    try:
        make_folder(dirs[0])
        require_folder(dirs[0])
        if not _has(made, text):
            with replaced(made) as f:
                f.write(text)
    except OSError as e:
        raise of_errno(e.errno, f"write a list of files to {dirs[0]}: {e.strerror}: give another cache=") from None
    return WrittenSource(f"{kind}:@{made}", dirs)


def _has(path: str, text: bytes) -> bool:
    """Whether a file has this content."""
    try:
        with open(path, "rb") as f:
            return f.read(len(text) + 1) == text
    except FileNotFoundError:
        return False


def written_index(rows: Iterable[Any], cache: Any) -> WrittenSource:
    """Writes the index of rows, whose shards are paths on this machine. Raises ArgumentError for a wrong row, and then nothing is left behind."""
    if isinstance(rows, (str, bytes, os.PathLike, Mapping)) or not isinstance(rows, Iterable):
        raise ArgumentError(f"ranges={rows!r:.80}: give rows of (shard, offset, length); an index file is the source ranges:INDEX")
    dirs = roots(cache)
    with NewFolder(dirs[0]):
        try:
            make_folder(dirs[0])
            require_folder(dirs[0])
            with tempfile.TemporaryDirectory(prefix=".ranges-", dir=dirs[0]) as work:
                path = os.path.join(work, INDEX)
                write_rows(path, rows, _anywhere, overlap=True)
                return _placed(path, dirs)
        except OSError as e:
            raise of_errno(e.errno, f"write an index of ranges to {dirs[0]}: {e.strerror}: give another cache=") from None


def _anywhere(i: int, _: str, shard: str) -> tuple[str, int]:
    """A shard anywhere on this machine."""
    if "://" in shard:
        raise ArgumentError(f"row {i}: shard {shard!r} is not on this machine: write an index with lcache.index next to it, and open ranges:INDEX")
    path = os.path.abspath(os.path.expanduser(shard))
    try:
        found = os.stat(path)
    except OSError as e:
        raise ArgumentError(f"row {i}: shard {shard!r}: {e.strerror}") from None
    if not stat.S_ISREG(found.st_mode):
        raise ArgumentError(f"row {i}: shard {shard!r} is not a regular file")
    return LINK + path, found.st_size


def _placed(path: str, dirs: tuple[str, ...]) -> WrittenSource:
    """Moves an index into the folder of its cache, which is in a root, or is the named directory itself."""
    if os.path.lexists(os.path.join(dirs[0], "job.json")):
        held = os.path.join(dirs[0], INDEX)
        if not os.path.exists(held) or not filecmp.cmp(path, held, shallow=False):
            raise ArgumentError(f"{dirs[0]} is the cache of other ranges, or of another source: give another cache=")
        return WrittenSource(f"ranges:{held}", dirs)
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        while piece := f.read(1 << 20):
            digest.update(piece)
    dirs = tuple(os.path.join(root, f"ranges-{digest.hexdigest()[:16]}") for root in dirs)
    made = os.path.join(dirs[0], INDEX)
    make_folder(dirs[0])
    require_folder(dirs[0])
    with contextlib.suppress(FileExistsError):
        os.symlink("/", os.path.join(dirs[0], LINK))
    if not os.path.exists(made) or not filecmp.cmp(path, made, shallow=False):
        os.replace(path, made)
    return WrittenSource(f"ranges:{made}", dirs)
