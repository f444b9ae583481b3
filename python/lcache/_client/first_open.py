"""The checks and messages of lcache.open about a source, before its server starts."""

from __future__ import annotations

import difflib
import errno
import logging
import os
import shlex
from collections.abc import Sequence
from typing import Any

from ..errors import of_errno, printable
from .cache_lock import print_line
from .match import is_url

_log = logging.getLogger("lcache")

SHARDS = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst")  # endings of the names of shards
_NO_RECORDS = ": it is a file: give a folder with a file for each sample, tar shards (tar:), or the kind of its records, such as bin: or ranges:, and its path"
# The endings of the names of files of records, and the kinds of sources that read them. kindOf of source/hint.go has the same.
_KINDS = {
    ".arrow": "arrow", ".parquet": "parquet", ".tfrecord": "tfrecord", ".tfrecords": "tfrecord", ".jsonl": "jsonl", ".npy": "npy", ".zip": "zip", ".bin": "bin",
}  # fmt: skip


def require_source(source: str) -> None:
    """Raises an OSError of lcache if a source that is a directory can't be listed. Called before a folder is made for its cache."""
    if is_url(source):
        return
    try:
        os.scandir(source).close()
    except OSError as e:
        advice = {errno.ENOENT: _meant(source), errno.ENOTDIR: _NO_RECORDS}.get(e.errno or 0, "")
        if advice and source.endswith(SHARDS):
            advice = f": did you mean {'tar:' + source!r}?"
        elif e.errno == errno.ENOTDIR and (kind := _KINDS.get(os.path.splitext(source)[1].lower())):
            advice = f": it is a file: did you mean {kind + ':' + source!r}?"
        raise of_errno(e.errno, f"open source {source}: {e.strerror}{advice}") from None


def _meant(path: str) -> str:
    """Advice about a path that does not exist: a similar name in the same folder."""
    folder, name = os.path.split(path.rstrip("/"))
    try:
        near = difflib.get_close_matches(name, os.listdir(folder), 1, 0.75)
    except OSError:
        return f": {folder} does not exist, either"
    return f": did you mean {os.path.join(folder, near[0])}?" if near else ": check its path"


def log_report(source: str, report: Any, is_new: bool, flags: Sequence[str]) -> None:
    """Logs the notable facts in the report about a source's cache. flags are the flags that `lcache ingest` was given."""
    dirs = report["dirs"]
    log_left_out(source, report, is_new)
    if is_new:
        log_place(source, dirs, report)
        log_records(source, report)
        log_other_caches(source, dirs, report)
    log_listing(source, dirs, report)
    log_first_epoch(source, dirs, report, flags)


def log_first_epoch(source: str, dirs: Sequence[str], report: Any, flags: Sequence[str]) -> None:
    """Logs a warning if the first epoch sends many more requests than an ingest of the same samples."""
    if cost := report.get("first_epoch"):
        command = shlex.join(["lcache", "ingest", "--source", source, "--cache", ",".join(dirs), *flags])
        gets, ingest = (f"{cost[name]:,} GET{'s' if cost[name] != 1 else ''}" for name in ("get_requests", "ingest_get_requests"))
        line = f"the first epoch asks the source for each sample: {gets} for {_amount(cost['bytes'])}. An ingest before it takes {ingest}: {command}"
        _log.warning(printable(f"{source}: {line}"))


def log_other_caches(source: str, dirs: Sequence[str], report: Any) -> None:
    """Logs other caches of the source, which were made with another filter."""
    for other in report.get("other_caches") or ():
        filter = f"ext={','.join(other['exts'])}" if other["exts"] else "no ext="
        line = f"{source} has another cache, with {filter}: {other['dir']}. Each filter that removes files has its own cache; `lcache rm` removes one"
        _log.warning(printable(line))


def log_place(source: str, dirs: Sequence[str], report: Any) -> None:
    """Logs, once for a new cache, the place and size of the copy of the source, and how to choose another place."""
    try:
        size, whole = report["arena_bytes"] + report["metadata_bytes"], report["bytes"]
    except (KeyError, TypeError):
        return  # a program of another version
    kept = "the" if report.get("hit_ratio", 1) >= 1 else f"{100 * report['hit_ratio']:.0f} % of the"
    line = (
        f"{source}: {kept} {_amount(whole)} are copied to {', '.join(dirs)} while the first epoch is read, which will take {_amount(size)}; "
        "cache= or $LCACHE_CACHE puts it elsewhere, `lcache rm` removes it"
    )
    _log.info(printable(line))
    if not (_log.isEnabledFor(logging.INFO) and _log.hasHandlers()):
        print_line(line)


def log_records(source: str, report: Any) -> None:
    """Logs a warning if each sample of a new cache is a whole tar file, or another file that probably has many samples."""
    if pattern := report.get("tar_pattern"):
        _log.warning(f"{printable(source)}: each sample is a whole tar file: give {pattern!r} as the source to read the samples inside")
    if why := report.get("records"):
        _log.warning(printable(f"{source}: {why}"))


def log_left_out(source: str, report: Any, is_new: bool) -> None:
    """Logs how many files of the source belong to no sample: at WARNING for a new cache, else at INFO."""
    if count := report.get("left_out"):
        files = f"{count:,} file{'s are' if count > 1 else ' is'}"
        why = "not in a class folder; flat=True takes all files as one list"
        if source.startswith("tar:"):
            files, why = f"{count:,} member{'s' if count > 1 else ''} of the shards {'are' if count > 1 else 'is'}", "only names such as KEY.EXT make samples"
        _log.log(logging.WARNING if is_new else logging.INFO, f"{printable(source)}: {files} left out: {why}")


def log_listing(source: str, dirs: Sequence[str], report: Any) -> None:
    """Logs when a source over a network was listed, if it was not listed again because its cache has all of it."""
    if listed := report.get("listed_before"):
        _log.info(f"{printable(source)}: listed {listed}, and not again, because {printable(', '.join(dirs))} has all of it; `lcache ingest` lists it again")


def _amount(size: float) -> str:
    """A number of bytes as text with a unit."""
    for unit in ("B", "KB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
