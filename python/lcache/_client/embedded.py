"""The server that lcache.open starts for a source, if none runs for it.

The first process that opens a source lists it and starts a server in its own session. Other processes find that server by the cache's folder. The server
ends LCACHE_LINGER seconds (default: 60) after its last client; 0: at once. A lock in the cache's folder lets one process at a time list the source and start
the server. The others wait, and print for which process. If the server was killed, the next process that needs it starts it again, including workers. If it
was stopped, that process first waits a moment for another server.
"""

from __future__ import annotations

import json
import logging
import os
import re
import select
import subprocess
import time
from typing import Any, NamedTuple

from ..errors import ConnectionError, Error, RefusedError, TimeoutError, of_errno, printable
from .cache_lock import POLL, Lock, NewFolder, print_line
from .clusters import absolute_paths
from .connection import Broken, Connection
from .environment import offered_sockets
from .first_open import log_report, require_source
from .match import is_url
from .program import program
from .program_errors import exception
from .stopped_server import Revival
from .trust import open_file, require_folder, warn_of_folders

_log = logging.getLogger("lcache")

_BUSY = re.compile(r"in use by process (\d+)")

# Variables that name another cache, or other files of the source. The server gets all of its settings as flags.
_NOT_INHERITED = (
    "LCACHE_CACHE", "LCACHE_SOURCE", "LCACHE_EXT", "LCACHE_FLAT", "LCACHE_GROUP", "LCACHE_LABELS", "LCACHE_PART",
    "LCACHE_QUIET", "LCACHE_EXIT_IDLE", "LCACHE_EXIT_LAST", "LCACHE_TAKE_OVER",
)

# Settings of sources over a network. A server of a directory refuses them, and a program may have sources of both kinds.
_OF_NETWORKS = ("LCACHE_S3_", "LCACHE_HTTP_", "LCACHE_SOURCE_HEDGE")

_warned: set[tuple[str, str]] = set()  # (source, warning of its server) that were logged


class Home(NamedTuple):
    """Everything needed to start a cache's server. Its pickle is a few strings, for worker processes."""

    source: str
    dirs: tuple[str, ...]  # of the cache, one on each SSD
    ingest: tuple[str, ...]  # flags of `lcache ingest`
    serve: tuple[str, ...]  # flags of `lcache serve`
    timeout: float  # seconds
    ext: tuple[str, ...] = ()  # the flag of a filter that may remove files. `ingest` and dirs belong to the source without the filter
    filtered: tuple[str, ...] = ()  # the directories of the cache if that filter removes files
    variables: tuple[tuple[str, str], ...] = ()  # of the environment of the server, in place of this process's

    def with_filter(self) -> Home:
        """The home of the cache that is made with the filter."""
        return self._replace(dirs=self.filtered, ingest=(*self.ingest, *self.ext), ext=(), filtered=())

    def without_filter(self) -> Home:
        """This home for a filter that removes no files."""
        return self._replace(ext=(), filtered=())

    @property
    def socket(self) -> str:
        return os.path.join(self.dirs[0], "lcache.sock")

    def revive(self, deadline: float) -> None:
        """Starts the server again if none runs, without a new listing of the source.

        If it was stopped, this waits for another one first: 10 s, or half of the time until the deadline if that is less.
        """
        ensure_server(self, relist=False, revival=Revival(until=(time.monotonic() + deadline) / 2))


def ensure_server(home: Home, relist: bool = True, revival: Revival | None = None) -> tuple[Home, bool]:
    """Returns when a server listens: (its home, whether this process started it). relist: list the source even if the cache exists.

    revival: for a program whose server has ended; None: the program had no server yet.
    A filter that removes files has its own cache, and all other filters share one. If a server listens already, home.filtered is kept, and the caller
    compares the server's samples with those of the filter.
    """
    if home.filtered and _is_made(home.filtered):
        home = home.with_filter()
    for folder in home.dirs:
        if os.path.islink(folder):
            raise Error(
                f"open the cache {folder}: it is a link to {os.path.realpath(folder)}, and lcache does not use a cache through a link: "
                "give the root of that folder as cache="
            )
        require_folder(folder)
    if _listens(home.socket):
        return home, False
    _linger()  # reports a wrong LCACHE_LINGER before a listing that may take long
    if not _is_made(home.dirs):
        require_source(home.source)
    try:
        return home, _start_server(home, relist, revival)
    except _Filtered as made:
        return home.with_filter(), ensure_server(home.with_filter(), made.relist, revival)[1]


def _start_server(home: Home, relist: bool, revival: Revival | None) -> bool:
    """Returns when a server listens at home.socket, and whether this process started it. Raises _Filtered if the cache is that of home.filtered."""
    is_new = not _is_made(home.dirs)
    with NewFolder(home.dirs[0]), Lock.take(os.path.join(home.dirs[0], "open.lock"), home.timeout) as lock:
        if revival is not None:
            revival.await_another(home.dirs, lock, lambda: _listens(home.socket))
        deadline = time.monotonic() + home.timeout
        while not _listens(home.socket):
            if home.filtered and _is_made(home.filtered):
                raise _Filtered(relist=True)  # another process made it while this one waited
            try:
                if relist or not _is_made(home.dirs):
                    report = _ingest(home, lock)
                    log_report(home.source, report, is_new or tuple(report["dirs"]) != home.dirs, home.ingest)
                    is_new = False
                    if tuple(report["dirs"]) != home.dirs:
                        raise _Filtered(relist=False)
                warn_of_folders(home.dirs)
                lock.write_activity("starting the server")
                started = _serve(home)
                if started.warning and (home.source, started.warning) not in _warned:
                    _warned.add((home.source, started.warning))
                    _log.warning(printable(f"{home.source}: {started.warning}"))
                if revival is not None:
                    revival.log_start(home.source, home.dirs, started.pid)
                return True
            except _Busy as busy:
                # The cache's server is ending, or was started by hand on another socket. Only in the first case does the wait help.
                if time.monotonic() > deadline:
                    raise ConnectionError(f"{busy.args[0]} (it does not listen at {home.socket}: connect to its own socket)") from None
                lock.write_activity(f"waiting for pid {busy.pid} to end")
                time.sleep(POLL)
    return False


def _is_made(dirs: tuple[str, ...]) -> bool:
    return os.path.exists(os.path.join(dirs[0], "job.json"))


class _Filtered(Exception):
    """The filter removes files of the source, so the cache is that of home.filtered. relist: that cache was not listed just now."""

    def __init__(self, relist: bool) -> None:
        super().__init__()
        self.relist = relist


class _Busy(Error):
    """Another process uses the cache."""

    def __init__(self, message: str, pid: str) -> None:
        super().__init__(message)
        self.pid = pid


def _listens(socket: str) -> bool:
    try:
        Connection(socket, time.monotonic() + 1, found=True).close()
    except RefusedError:
        raise
    except (Broken, ConnectionError):
        return False
    return True


def _environment(home: Home) -> dict[str, str]:
    """This process's environment for a server of the source."""
    dropped = {*_NOT_INHERITED, *offered_sockets()}
    if not is_url(home.source):
        dropped |= {name for name in os.environ if name.startswith(_OF_NETWORKS)}
    return absolute_paths({**{k: v for k, v in os.environ.items() if k not in dropped}, **dict(home.variables)})


def _start(home: Home, command: list[str], **streams: Any) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=_environment(home), start_new_session=True, **streams
        )
    except OSError as e:
        raise of_errno(e.errno, f"start {command[0]}: {e.strerror}; set LCACHE_BIN to the lcache program") from None


def _failed(home: Home, errors: str, wrong_usage: bool = False) -> Error:
    """The error of an lcache program that ended and wrote `errors` to stderr."""
    error, busy = exception(home.source, errors, wrong_usage), _BUSY.search(errors)
    return _Busy(str(error), busy[1]) if busy else error


def _ingest(home: Home, lock: Lock) -> Any:
    """Lists the source, and returns the program's report.

    Its progress is written to the lock and to stderr. If this process dies, ingest ends when it next writes progress.
    """
    command = [program(), "ingest", "--source", home.source, "--cache", ",".join(home.dirs), "--no-prefill", "--unless-complete"]
    command += ["--progress", "json", "--json", *home.ingest, *home.ext]
    command += ["--cache-if-filtered", ",".join(home.filtered)] if home.filtered else []
    process = _start(home, command, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    errors, reported = [], False
    try:
        for raw in process.stderr:
            line = raw.decode(errors="backslashreplace").rstrip()
            try:
                progress = _progress(json.loads(line))
            except ValueError:
                errors.append(line)
                continue
            reported = True
            lock.write_activity(progress)
            print_line(f"{home.source}: {progress}")
        report = process.stdout.read()
        process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
        process.stdout.close()
        process.stderr.close()
    if process.returncode != 0:
        raise _failed(home, "\n".join(errors), process.returncode == 2)
    made = json.loads(report)
    if made["changed"]:
        was = f"{made['added_samples']:,} samples added, {made['removed_samples']:,} removed, {made['changed_samples']:,} changed"
        print_line(f"{home.source} has changed since the cache was made: {'the cache is made again' if made['anew'] else was}")
    if reported:
        print_line(f"{home.source}: {made['samples']:,} samples")
    return made


def _progress(report: Any) -> str:
    """A progress report of `lcache ingest` as text. Raises ValueError for anything else."""
    if not isinstance(report, dict) or "stage" not in report:
        raise ValueError
    if report.get("total"):
        return f"{report['stage']}, {100 * report['done'] // report['total']} %"
    return f"{report['stage']}, {report['done']:,} {report['unit']}"


def _linger() -> str:
    """$LCACHE_LINGER as a flag's value: seconds, or a duration with a unit (500ms, 2m). 0 ends the server with its last client."""
    given = os.environ.get("LCACHE_LINGER", "").strip() or "60"
    if not re.fullmatch(r"(\d+(\.\d*)?|\.\d+)(ms|s|m|h)?", given):
        raise Error(
            f"LCACHE_LINGER={given!r}: give the time that a server runs on after its last client: seconds, such as 60 or 0.5, or 2m; 0: it ends at once"
        )
    return given if given[-1].isalpha() else given + "s"


class _Started(NamedTuple):
    """A server's report of its start."""

    pid: int
    warning: str  # a missing feature, such as metrics; "": none


def _serve(home: Home) -> _Started:
    """Starts the server and returns when it listens.

    A shell starts the server and ends at once. So the server is not a child of this process: it leaves no zombie, and signals to this process's
    children do not reach it.
    """
    command = [program(), "serve", "--cache", ",".join(home.dirs), "--socket", home.socket, "--json"]
    command += ["--progress", "json", "--exit-last", _linger(), *home.serve]
    path = os.path.join(home.dirs[0], "serve.log")
    log = open_file(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        if os.fstat(log).st_size > 1 << 20:
            os.ftruncate(log, 0)
        begin = os.fstat(log).st_size
        process = _start(home, ["/bin/sh", "-c", '"$@" & ', "lcache", *command], stderr=log, cwd="/")
        assert process.stdout is not None
        try:
            process.wait()
            started = _ready(process.stdout.fileno(), home.timeout)
            if started is None:
                raise _failed(home, os.pread(log, 1 << 16, begin).decode(errors="backslashreplace"))
            return started
        finally:
            process.stdout.close()
    finally:
        os.close(log)


def _ready(fd: int, timeout: float) -> _Started | None:
    """Waits until the server writes that it listens. None if it ended before."""
    written, deadline = b"", time.monotonic() + timeout
    while True:
        if not select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise TimeoutError(f"waited {timeout:g} s for the lcache server to start: give a larger timeout=, or see its log")
        more = os.read(fd, 4096)
        if not more:
            return None
        written += more
        try:
            said = json.loads(written)
        except ValueError:
            continue  # an incomplete line
        return _Started(said.get("pid", 0), said.get("warning", ""))
