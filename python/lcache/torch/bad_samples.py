"""bad= of datasets: the names of samples that are left out, as if their files did not exist."""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

from .._client import checked
from ..errors import ArgumentError, of_errno, printable
from ..job import Job
from ._order.loader_job import LeftOut

DROP = "drop"  # bad="drop": the list of the last check

_GIVE = "give a file with one name a line"
_BLOCK = 1 << 16  # names that are looked at together
_SHOWN = 200  # characters of an unknown name in a warning: a wrong file may have one line of many MB

_log = logging.getLogger("lcache")


def names_of(bad: Any, job: Job) -> list[str]:
    """The names that bad= lists. Raises ArgumentError if it is neither a file nor "drop", or if there was no check; FileNotFoundError without the file."""
    if isinstance(bad, str) and bad == DROP:
        last = checked.read(job.source)
        if last is None:
            raise ArgumentError(
                f'bad="drop": {printable(job.source)} was not checked, or by another user or machine ({checked.path_of(job.source)} does not exist): '
                "run lcache.torch.check(dataset), or give a file with one name a line"
            )
        if last.fingerprint != job.fingerprint:
            _log.warning('bad="drop": %s has changed since the last check; run lcache.torch.check again', printable(job.source))
        return last.bad
    if not isinstance(bad, (str, os.PathLike)) or not os.fspath(bad):
        raise ArgumentError(f'bad={bad!r:.80}: give the path of a file with one name a line, or "drop" for the list of the last lcache.torch.check')
    path = os.fsdecode(bad)
    what = f"read the names of bad samples in {printable(path)}"
    if "\0" in path:
        raise ArgumentError(f"{what}: the path has a zero byte; {_GIVE}")
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # without O_NONBLOCK, a FIFO without a writer would wait for one
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise ArgumentError(f"{what}: it is not a regular file; {_GIVE}")
        text = checked.read_bounded(fd, path)
    except OSError as e:
        raise of_errno(e.errno, f"{what}: {e.strerror}; {_GIVE}") from None
    return [os.fsdecode(line) for line in (line.rstrip(b"\r") for line in text.split(b"\n")) if line]


def left_out(bad: Any, job: Job, kept: Sequence[int] | None) -> tuple[array[int] | None, LeftOut]:
    """(the positions of a dataset's samples that stay, None for all; the samples that are left out). kept are the job's indices of the dataset's samples;
    None: all.

    A name is the sample's path below the source, or the path of its file. Logs a warning for names that no sample has.
    """
    prefix = os.path.join(os.path.abspath(job.source), "")
    listed = {name: name.removeprefix(prefix).removeprefix("./") for name in names_of(bad, job)}  # `find .` prints ./NAME
    names = named(job, {*listed, *listed.values()})
    known = set(names.values())
    unknown = [name for name, below in listed.items() if name not in known and below not in known]
    if unknown:
        all_unknown = " Names are paths below the source." if not known else ""
        _log.warning(
            "bad=%s: %d of %d names are not among the samples of %s, such as %s.%s",
            printable(str(bad)), len(unknown), len(listed), printable(job.source), printable(repr(min(unknown)[:_SHOWN])), all_unknown,
        )
    indices = range(job.samples) if kept is None else kept
    dropped = [names[index] for index in (names if kept is None else kept) if index in names]
    if not dropped:
        return None, LeftOut(0, "")
    stay = array("I", (position for position, index in enumerate(indices) if index not in names))
    if not stay:
        raise ArgumentError(f"bad={printable(str(bad))} lists all {len(dropped)} samples of {printable(job.source)}: nothing is left to train on")
    return stay, LeftOut(len(dropped), digest(dropped))


def named(job: Job, wanted: set[str]) -> dict[int, str]:
    """The names of the job's samples that are wanted, by index. It never holds all names, which may be millions."""
    found: dict[int, str] = {}
    for first in range(0, job.samples if wanted else 0, _BLOCK):
        block = range(first, min(first + _BLOCK, job.samples))
        found.update((index, name) for index, name in zip(block, job.names(block)) if name in wanted)
    return found


def digest(names: Iterable[str]) -> str:
    """SHA-256 of sorted names; "" without names."""
    encoded = sorted(os.fsencode(name) for name in names)
    return hashlib.sha256(b"\0".join(encoded)).hexdigest() if encoded else ""
