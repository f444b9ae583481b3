"""Running servers: the servers that the environment names, and the server at a given socket. A server is used only if it has the samples of the program."""

from __future__ import annotations

import logging
import os

from ._client.environment import offered_sockets
from ._client.match import HeldListing, Listing, difference
from .errors import ArgumentError, Error, printable
from .job import Job, connect_as

_log = logging.getLogger("lcache")

_ASK = 10.0  # seconds for such a server to describe its dataset


def offered_job(named: Listing, timeout: float, rank: int) -> Job | None:
    """A job of the first server of the environment that has what the program names.

    None if there is none. If servers are offered and none fits, one warning gives the reasons.
    """
    refused = []
    for variable, path in offered_sockets().items():
        try:
            job = connect_as(rank, path, min(timeout, _ASK))
        except Error as e:
            refused.append(f"{variable}: {e}")
            continue
        differs = _difference(named, job)
        if not differs:
            job.timeout = timeout
            return job
        refused.append(f"{variable} serves {_described(job, differs)}")
        job.close()
    if refused:
        reasons = "; ".join(refused)
        said = f"no server that the environment offers has {named.source}, which the program names ({reasons}): starting a server for it"
        _log.warning(printable(said))
    return None


def job_at(path: str | os.PathLike[str], named: Listing, timeout: float, rank: int) -> Job:
    """A job of the server at a socket. Raises ArgumentError if that server has other samples than the program names."""
    job = connect_as(rank, path, timeout)
    differs = _difference(named, job)
    if differs:
        described = _described(job, differs)
        job.close()
        raise ArgumentError(
            f"the server at {os.fspath(path)} serves {described}, and the program names {named.source}: "
            "give the socket of a server of that source, or leave out the source if it is the same under another mount point"
        )
    return job


def filter_differs(named: Listing, job: Job) -> bool:
    """Whether a server has other samples than the program names, and only the filter makes the difference."""
    ext = tuple(map(str, (job.info.listing or {}).get("ext") or ()))
    return bool(_difference(named, job)) and not _difference(named._replace(ext=ext), job)


def require_match(named: Listing, job: Job) -> None:
    """Raises ArgumentError if the server of the source's own cache has other samples. The source may have been replaced since the server started."""
    differs = _difference(named, job)
    if differs:
        pid, described = job.pid, _described(job, differs)
        job.close()
        other = ", which has become another directory" if differs == "the source" else ""
        raise ArgumentError(
            f"the server (pid {pid}) of this cache serves {described}, and the program names {named.source}{other}: "
            "stop that server first, or give another cache="
        )


def _difference(named: Listing, job: Job) -> str:
    """How the server's samples differ from the program's; "" if they are the same."""
    info = job.info
    if not info.listing:  # a server of an earlier release describes only its source
        return "" if info.source == named.source else "the source"
    return difference(named, HeldListing.of_server(info.source, info.listing))


def _described(job: Job, differs: str) -> str:
    source = job.info.source
    return source if differs == "the source" else f"{source}, listed with {differs}"
