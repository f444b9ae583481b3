"""Servers that run already: those that the environment offers, and the one at a given socket. One is used only if it has what the program names."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from .errors import ArgumentError, Error
from .job import Job, connect
from .match import Listing, Made, difference

_log = logging.getLogger("lcache")

_PREFIX = "LCACHE_SOCKET"
_FLAGS = (_PREFIX + "_MODE", _PREFIX + "_GROUP")  # of `lcache serve`
_ASK = 10.0  # seconds for a server of the environment to say what it has


def offered(named: Listing, timeout: float, rank: int) -> Job | None:
    """A job of the first server of the environment that has what the program names; None, and one warning, if there are servers and none has it."""
    refused = []
    for variable, path in sockets().items():
        try:
            job = connect(path, min(timeout, _ASK))
        except Error as e:
            refused.append(f"{variable}: {e}")
            continue
        differs = _differs(named, job)
        if not differs:
            job._link.timeout, job._rank = timeout, rank
            return job
        refused.append(f"{variable} is of {_what(job, differs)}")
        job.close()
    if refused:
        _log.warning("the program names %s, and no server that the environment offers has that (%s): it gets a server of its own", named.source, "; ".join(refused))
    return None


def at(path: str | os.PathLike[str], named: Listing, timeout: float, rank: int) -> Job:
    """A job of the server at a socket, which must have what the program names."""
    job = connect(path, timeout)
    differs = _differs(named, job)
    if differs:
        job.close()
        raise ArgumentError(
            f"the server at {os.fspath(path)} is of {_what(job, differs)}; the program names {named.source}: "
            "give the socket of a server of that source, or leave out the source if it is the same one under another mount point"
        )
    job._rank = rank
    return job


def check(named: Listing, job: Job) -> None:
    """ArgumentError if the server of a source's own cache has something else: the source may have been replaced since it was started."""
    differs = _differs(named, job)
    if differs:
        pid, what = job.pid, _what(job, differs)
        job.close()
        other = ", which is another directory by now" if differs == "the source" else ""
        raise ArgumentError(f"the server (pid {pid}) of this cache is of {what}; the program names {named.source}{other}: end that server first, or give another cache=")


def sockets(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """The sockets that the environment names, by variable: LCACHE_SOCKET first, each once."""
    env = os.environ if env is None else env
    names = sorted(name for name in env if name == _PREFIX or name.startswith(_PREFIX + "_") and name not in _FLAGS)
    found: dict[str, str] = {}
    for name in names:
        if env[name] and env[name] not in found.values():
            found[name] = env[name]
    return found


def _differs(named: Listing, job: Job) -> str:
    info = job._link.info
    if not info.listing:  # a server of an earlier version
        return "" if info.source == named.source else "the source"
    return difference(named, Made.by_server(info.source, info.listing))


def _what(job: Job, differs: str) -> str:
    source = job._link.info.source
    return source if differs == "the source" else f"{source}, listed with {differs}"
