"""check(): decodes every sample of a dataset once, and lists those that fail."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import shutil
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch.utils.data

from .._client import checked
from .._client.cache_lock import is_quiet
from ..errors import ArgumentError, Error, SampleError, printable
from ._order.loader_job import Leaf
from ._order.loop_names import short_name
from .bad_samples import named
from .held_interrupts import HeldInterrupts

_log = logging.getLogger("lcache")

_PIECE = 64  # samples that are requested together
_AHEAD = 2  # pieces that each worker has
_TOO_MANY = 0.5  # of the samples: if more fail, the reason is not in the samples
_REDRAWN = 0.1  # seconds between two states of the progress line


class Bad(NamedTuple):
    """A sample that can't be read or decoded."""

    index: int  # type: ignore[assignment]  # in the dataset
    name: str | None  # the path below the source; None: unknown
    exception: Exception


def check(dataset: Any, *, num_workers: int | None = None) -> list[Bad]:
    """Makes every sample of an lcache dataset once, with its own decoder and transforms, and returns (index, name, exception) of those that fail.

    num_workers is the number of worker processes. Default: one for each CPU, up to 8; 0: this process decodes. On a terminal it shows its progress on
    stderr. The names are also kept for bad="drop", in the user's cache folder. An interrupted check changes nothing there. The exceptions have no
    traceback. Raises the errors that do not concern one sample, such as lcache.ConnectionError.
    """
    if not isinstance(dataset, Leaf):
        raise ArgumentError(f"check takes an lcache.torch.Dataset or ImageFolder, not {type(dataset).__name__}: give the dataset that reads the files")
    if num_workers is not None and (not isinstance(num_workers, int) or num_workers < 0):
        raise ArgumentError(f"check(num_workers={num_workers!r:.80}): give a whole number of at least 0")
    workers = min(len(os.sched_getaffinity(0)), 8) if num_workers is None else num_workers
    total = len(dataset)  # type: ignore[arg-type]
    pieces = [range(first, min(first + _PIECE, total)) for first in range(0, total, _PIECE)]
    workers = min(workers, len(pieces))
    interrupts = HeldInterrupts()
    loader: Any = torch.utils.data.DataLoader(
        _Pieces(dataset, interrupts), None, sampler=_requests(pieces, interrupts), num_workers=workers, collate_fn=_unchanged,
        prefetch_factor=_AHEAD if workers else None, worker_init_fn=_begin_worker,
        generator=torch.Generator(),  # the program's own draws nothing
    )
    bad: list[Bad] = []
    progress = _Progress(dataset.job.source, total)
    done = 0
    try:
        with interrupts if workers else contextlib.nullcontext():
            for found in _received(loader, len(pieces), interrupts):
                bad += found
                done = min(done + _PIECE, total)
                progress.show(done, len(bad))
    except KeyboardInterrupt as e:
        traceback.clear_frames(e.__traceback__)  # a notebook keeps the traceback, and its frames would keep the workers
        raise
    except RuntimeError as e:
        if workers:
            traceback.clear_frames(e.__traceback__)  # workers that are forked later would inherit the loader, and torch complains in them
        if isinstance(e, Error) or "worker" not in str(e):
            raise
        last = min(done + _PIECE * _AHEAD * workers, total) - 1
        raise Error(
            f"check {printable(dataset.job.source)}: a worker process ended, probably in the decoder, on one of the samples {done} to {last}: "
            f"check(dataset, num_workers=0) ends on that sample ({e})"
        ) from e
    finally:
        progress.end()
    _keep(dataset, bad, total)
    return bad


class _Pieces(torch.utils.data.Dataset[Any]):
    """Items are the failures in a range of a dataset's samples."""

    def __init__(self, dataset: Any, interrupts: HeldInterrupts) -> None:
        self.dataset, self.interrupts = dataset, interrupts

    def __getitem__(self, indices: range) -> list[Bad]:
        self.interrupts.release()
        try:
            return self._found(indices)
        finally:
            self.interrupts.hold()

    def _found(self, indices: range) -> list[Bad]:
        try:
            made = self.dataset.__getitems__(list(indices))
            if len(made) == len(indices):
                return []
        except Exception as e:  # noqa: BLE001  a decoder may raise anything; which sample it was is found out below
            _require_of_sample(e)
        return list(self._failures(indices))

    def _failures(self, indices: Iterable[int]) -> Iterator[Bad]:
        for index in indices:
            try:
                self.dataset[index]
            except Exception as e:  # noqa: BLE001
                _require_of_sample(e)
                yield Bad(index, _name_of(self.dataset, index, e), _plain(e))


def _requests(pieces: Iterable[range], interrupts: HeldInterrupts) -> Iterator[range]:
    """The sampler. When torch has an answer, it asks for the next piece, puts it in a worker's queue, and returns the answer."""
    for piece in pieces:
        interrupts.hold()
        yield piece


def _received(loader: Any, pieces: int, interrupts: HeldInterrupts) -> Iterator[list[Bad]]:
    """What the workers find. Ctrl-C waits while they start, while a request is put in a queue, and while they end."""
    answers = iter(loader)
    for _ in range(pieces):
        interrupts.release()
        yield next(answers)
    interrupts.hold()
    next(answers, None)  # ends the workers


def _begin_worker(_: int) -> None:
    """A worker handles Ctrl-C only while it reads and decodes."""
    info = torch.utils.data.get_worker_info()
    assert info is not None
    info.dataset.interrupts.__enter__()  # for the rest of the process


def _require_of_sample(error: Exception) -> None:
    """Raises an error again unless it may concern a sample alone."""
    if isinstance(error, Error) and not isinstance(error, SampleError):
        raise error


def _name_of(dataset: Any, index: int, error: Exception) -> str | None:
    if isinstance(error, SampleError) and error.sample is not None:
        return error.sample
    try:
        name: str = dataset.job.names([_in_job(dataset, index)])[0]
    except SampleError:
        return None
    return name


def _in_job(dataset: Any, index: int) -> int:
    found: int = index if dataset.lcache_kept is None else dataset.lcache_kept[index]
    return found


def _plain(error: Exception) -> Exception:
    """A copy of an exception that any process can have, without tracebacks, which would keep batches."""
    try:
        copy: Exception = pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001  an exception's own constructor may raise anything
        return RuntimeError(f"{type(error).__name__}: {error}")
    return copy


def _unchanged(found: Any) -> Any:
    return found


def _keep(dataset: Any, bad: Sequence[Bad], total: int) -> None:
    """Keeps the names for bad="drop". Names of earlier checks stay, unless their samples were decoded now."""
    source, fingerprint = dataset.job.source, dataset.job.fingerprint
    if len(bad) > _TOO_MANY * total:
        text = '%d of %d samples of %s fail: the list is not kept for bad="drop", because the decoder or the source seems to be at fault'
        _log.warning(text, len(bad), total, printable(source))
        return
    names = {found.name for found in bad if found.name is not None}
    try:
        last = checked.read(source)
    except Error:
        last = None  # it is damaged
    if last is not None and last.bad:
        known = named(dataset.job, set(last.bad))
        here = known.values() if dataset.lcache_kept is None else (known[index] for index in dataset.lcache_kept if index in known)
        names |= set(last.bad).difference(here)
    try:
        checked.write(source, fingerprint, names)
    except OSError as e:
        _log.warning('the list of bad samples of %s could not be kept for bad="drop": %s', printable(source), e)


class _Progress:
    """One line on stderr, if that is a terminal."""

    def __init__(self, source: str, total: int) -> None:
        self._source, self._total = printable(short_name(source, {source})), total
        self._shown = sys.stderr is not None and sys.stderr.isatty() and not is_quiet()
        self._began = time.monotonic()
        self._drawn = 0.0
        self._done = self._bad = 0

    def show(self, done: int, bad: int) -> None:
        """Shows the progress, at most ten times a second."""
        self._done, self._bad, now = done, bad, time.monotonic()
        if self._shown and now - self._drawn >= _REDRAWN:
            self._drawn = now
            left = (now - self._began) * (self._total - done) / max(done, 1)
            self._write(f"check {self._source}: {done:,} / {self._total:,} · {100 * done / max(self._total, 1):.0f} % · {bad:,} bad · {left:.0f} s left")

    def end(self) -> None:
        """Replaces the line by the result."""
        if self._shown:
            seconds = time.monotonic() - self._began
            self._write(f"checked {self._done:,} of {self._total:,} samples of {self._source} in {seconds:.0f} s: {self._bad:,} bad", "\n")

    def _write(self, text: str, end: str = "") -> None:
        sys.stderr.write(f"\r\x1b[K{text[: max(shutil.get_terminal_size().columns - 1, 20)]}{end}")
        sys.stderr.flush()
