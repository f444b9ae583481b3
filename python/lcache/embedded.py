"""lcache.open: a Job without a server to think about.

The first process that opens a source lists it and starts a server with a session of its own, which others find by the cache's
folder and which ends LCACHE_LINGER seconds (60) after its last client; 0: at once. A lock in that folder lets one process at a time do so; the others wait and
say for whom. A server that dies is started again by whoever needs it next, workers included.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .cachedirs import cache_of, folders
from .connection import Broken, Connection
from .errors import ConnectionError, Error, TimeoutError
from .job import Job
from .match import Listing
from .running_servers import at, check, offered, sockets
from .replay import Options, beside
from .replay import params as as_text
from .environment import place

_log = logging.getLogger("lcache")

_BUSY = re.compile(r"in use by process (\d+)")
_POLL = 0.1  # seconds between looks at a lock that another process holds
_SAY = 5.0  # seconds between lines about a wait that goes on


class Home(NamedTuple):
    """What it takes to start a cache's server: a few strings, so that a worker process can carry it along."""

    source: str
    dirs: tuple[str, ...]
    ingest: tuple[str, ...]
    serve: tuple[str, ...]
    timeout: float

    @property
    def socket(self) -> str:
        return os.path.join(self.dirs[0], "lcache.sock")

    def revive(self) -> None:
        """Starts the server if none runs; the cache is as it was left."""
        ensure(self, relist=False)


def open(  # the name is part of the API
    source: str | os.PathLike[str],
    cache: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    *,
    recipe: str | None = None,
    seed: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    world_size: int | None = None,
    rank: int | None = None,
    drop_last: bool | None = None,
    params: Mapping[str, Any] | None = None,
    budget: int | str | None = None,
    memory: int | str | None = None,
    ext: str | Iterable[str] = (),
    flat: bool = False,
    group: str = "none",
    labels: str | os.PathLike[str] | None = None,
    follow_links: bool | None = None,
    on_error: str | None = None,
    socket: str | os.PathLike[str] | None = None,
    timeout: float = 60.0,
    _sized_for: int | None = None,
) -> Job:
    """A Job over a source, with a server of its own if none runs for it yet.

    A server that the environment offers ($LCACHE_SOCKET, $LCACHE_SOCKET_<NAME>, as `lcache run` sets them) is used if it has just this source,
    listed in this way; the one at socket must have it. Else there is a server of the source's own. cache is that source's cache, or a root (or several,
    on as many SSDs) with a folder for each dataset; default: $LCACHE_CACHE, else lcache in the user's cache folder.

    The other arguments are the flags of `lcache ingest`. If a server runs already and has another order (recipe, seed, batch_size, drop_last,
    params), this job has its own all the same, which is pushed; what can't be had is an error that names both values. budget and memory stay
    those of that server. world_size and rank come from torchrun's or Slurm's variables if not given. follow_links is False if no link that
    leaves the source is to be followed; such links are by default. on_error is "fail" (a sample that can't be read is a
    SampleError, the default) or "skip" (it is left out of its batch, which is shorter then). timeout is the deadline of every later wait, in seconds.
    """
    here = place()
    named = Listing.of(source, ext, flat, group, labels, follow_links)
    options = Options(recipe, seed, epochs, batch_size, world_size, drop_last, as_text(params), on_error)
    rank, world = here.rank if rank is None else rank, here.world if world_size is None else world_size
    job = at(socket, named, timeout, rank) if socket is not None else offered(named, timeout, rank)
    if job is None:
        made = cache_of(named, cache)
        if made is not None:
            named, options = made.listing, made.merged(options)
            memory = memory if memory is not None else made.memory
        flags = (options if options.batch_size is not None else options._replace(batch_size=_sized_for)).flags()
        if options.recipe is not None or world > 1:  # also without a recipe each rank pushes an order, and takes a share of the memory
            flags += ["--world-size", str(world)]
            if world == here.world and len(here.ranks) < world:
                flags += ["--ranks", ",".join(map(str, here.ranks))]
        flags += ["--budget", str(budget)] if budget is not None else []
        common = ("--memory", str(memory)) if memory is not None else ()
        serving = ("--on-error", on_error) if on_error is not None else ()
        dirs = made.dirs if made is not None else folders(named.source, cache, named.flags())
        home = Home(named.source, dirs, (*named.flags(), *named.link_flags(), *flags, *common), (*common, *named.link_flags(), *serving), timeout)
        started = ensure(home)
        job = Job(home.socket, timeout, home, rank)
        job._link.attach(job._link.deadline())
        check(named, job)
        if on_error is None:
            options = options._replace(on_error="fail")
    else:
        started = False
    try:
        job._named, job._replay = options, beside(options, job._link.info, world, binary)
    except BaseException:
        job.close()
        raise
    if not started and (budget, memory) != (None, None):
        _log.info("budget and memory are those that the server (pid %d) was started with", job.pid)
    return job


def ensure(home: Home, relist: bool = True) -> bool:
    """Returns when a server listens at home.socket: whether this process has started it."""
    for folder in home.dirs:
        if os.path.islink(folder):
            raise Error(f"{folder} is a link to {os.path.realpath(folder)}, and a cache is not used through a link: give its own folder's root as cache=")
    if _listens(home.socket):
        return False
    _linger()  # an error of it comes before a listing that may take long
    os.makedirs(home.dirs[0], mode=0o700, exist_ok=True)
    with _Lock(os.path.join(home.dirs[0], "open.lock"), home.timeout) as lock:
        deadline = time.monotonic() + home.timeout
        while not _listens(home.socket):
            try:
                if relist or not os.path.exists(os.path.join(home.dirs[0], "job.json")):
                    _ingest(home, lock)
                lock.say("starting the server")
                _serve(home)
                return True
            except _Busy as busy:
                # A server that is just ending, or one that was started by hand on another socket: only the first goes away.
                if time.monotonic() > deadline:
                    raise ConnectionError(f"{busy}: that server does not listen at {home.socket}; connect to its own socket, or stop it") from None
                lock.say(f"waiting for pid {busy.pid} to end")
                time.sleep(_POLL)
    return False


class _Busy(Error):
    def __init__(self, message: str, pid: str) -> None:
        super().__init__(message)
        self.pid = pid


def _listens(socket: str) -> bool:
    try:
        Connection(socket, time.monotonic() + 1).close()
    except (Broken, ConnectionError):
        return False
    return True


class _Lock:
    """A file that one process at a time has locked, and in which it says what it does. The kernel unlocks it when that process ends."""

    def __init__(self, path: str, timeout: float) -> None:
        self._path, self._timeout = path, timeout

    def __enter__(self) -> _Lock:
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            self._wait()
        except BaseException:
            os.close(self._fd)
            raise
        self.say("opening")
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def say(self, what: str) -> None:
        text = f"{os.getpid()}: {what}".encode()
        os.pwrite(self._fd, text, 0)
        os.ftruncate(self._fd, len(text))

    def _wait(self) -> None:
        said, changed, printed = b"", time.monotonic(), time.monotonic() - _SAY + 1
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                pass
            now, says = time.monotonic(), os.pread(self._fd, 4096, 0)
            if says != said:
                said, changed = says, now
            if now - changed > self._timeout:
                raise TimeoutError(f"waited {self._timeout:g} s for pid {says.decode(errors='replace')}, without news from it ({self._path})")
            if now - printed >= _SAY:
                printed = now
                _print(f"waiting for pid {says.decode(errors='replace')}")
            time.sleep(_POLL)


def _print(line: str) -> None:
    print(f"lcache: {line}", file=sys.stderr, flush=True)


def binary() -> str:
    """The lcache program: $LCACHE_BIN, or lcache beside this Python or on PATH."""
    given = os.environ.get("LCACHE_BIN")
    if given:
        return given
    beside = os.path.join(os.path.dirname(sys.executable), "lcache")
    found = beside if os.access(beside, os.X_OK) else shutil.which("lcache")
    if found is None:
        raise Error("there is no lcache program: put it on PATH, or set LCACHE_BIN to it")
    return found


def _environment() -> dict[str, str]:
    """Ours, without what names another cache, or other files of the source: everything that matters here is given as a flag."""
    dropped = {"LCACHE_CACHE", "LCACHE_SOURCE", "LCACHE_EXT", "LCACHE_FLAT", "LCACHE_GROUP", "LCACHE_LABELS", "LCACHE_QUIET", "LCACHE_EXIT_IDLE", "LCACHE_EXIT_LAST", *sockets()}
    return {k: v for k, v in os.environ.items() if k not in dropped}


def _start(command: list[str], **streams: Any) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=_environment(), start_new_session=True, **streams)
    except OSError as e:
        raise Error(f"start {command[0]}: {e.strerror}; set LCACHE_BIN to the lcache program") from None


def _failed(what: str, home: Home, errors: str) -> Error:
    lines = [line for line in errors.strip().splitlines() if not line.startswith("default ")]
    text = f"lcache {what} of {home.source} into {home.dirs[0]}: {lines[-1] if lines else 'ended without a word'}"
    busy = _BUSY.search(errors)
    return _Busy(text, busy[1]) if busy else Error(text)


def _ingest(home: Home, lock: _Lock) -> None:
    """Lists the source. What it says of its progress goes into the lock and to stderr. If this process dies it ends at its next word."""
    command = [binary(), "ingest", "--source", home.source, "--cache", ",".join(home.dirs), "--no-prefill", "--progress", "json", "--json", *home.ingest]
    process = _start(command, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    errors, told = [], False
    try:
        for raw in process.stderr:
            line = raw.decode(errors="replace").rstrip()
            try:
                news = _progress(json.loads(line))
            except ValueError:
                errors.append(line)
                continue
            told = True
            lock.say(news)
            _print(f"{home.source}: {news}")
        report = process.stdout.read()
        process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
        process.stdout.close()
        process.stderr.close()
    if process.returncode != 0:
        raise _failed("ingest", home, "\n".join(errors))
    made = json.loads(report)
    if made["changed"]:
        was = f"{made['added_samples']:,} samples added, {made['removed_samples']:,} removed, {made['changed_samples']:,} changed"
        _print(f"{home.source} is not what it was when the cache was made: {'the cache is made anew' if made['anew'] else was}")
    if told:
        _print(f"{home.source}: {made['samples']:,} samples")


def _progress(said: Any) -> str:
    if not isinstance(said, dict) or "stage" not in said:
        raise ValueError
    if said.get("total"):
        return f"{said['stage']}, {100 * said['done'] // said['total']} %"
    return f"{said['stage']}, {said['done']:,} {said['unit']}"


def _linger() -> str:
    """$LCACHE_LINGER as a flag's value: seconds, or a time with a unit (500ms, 2m); 0 ends the server with its last client."""
    given = os.environ.get("LCACHE_LINGER", "").strip() or "60"
    if not re.fullmatch(r"(\d+(\.\d*)?|\.\d+)(ms|s|m|h)?", given):
        raise Error(f"LCACHE_LINGER={given!r}: give the seconds that a server stays after its last client, like 60 or 0.5, or a time like 2m; 0: it ends at once")
    return given if given[-1].isalpha() else given + "s"


def _serve(home: Home) -> None:
    """Starts the server and returns when it listens. A shell starts it and ends at once, so that it is nobody's child: neither a zombie later
    nor in reach of what kills this process's children."""
    command = [binary(), "serve", "--cache", ",".join(home.dirs), "--socket", home.socket, "--json", "--exit-last", _linger(), *home.serve]
    path = os.path.join(home.dirs[0], "serve.log")
    log = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if os.fstat(log).st_size > 1 << 20:
            os.ftruncate(log, 0)
        begin = os.fstat(log).st_size
        process = _start(["/bin/sh", "-c", '"$@" & ', "lcache", *command], stderr=log, cwd="/")
        assert process.stdout is not None
        try:
            process.wait()
            if not _ready(process.stdout.fileno(), home.timeout):
                raise _failed("serve", home, os.pread(log, 1 << 16, begin).decode(errors="replace"))
        finally:
            process.stdout.close()
    finally:
        os.close(log)


def _ready(fd: int, timeout: float) -> bool:
    """Whether the server said that it listens, which it does once; False if it ended before."""
    said, deadline = b"", time.monotonic() + timeout
    while b"}" not in said:
        if not select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise TimeoutError(f"waited {timeout:g} s for the lcache server to start")
        more = os.read(fd, 4096)
        if not more:
            return False
        said += more
    return True
