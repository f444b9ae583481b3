"""The wait for another server after a cache's server was stopped, as by `lcache stop` before `lcache serve`.

A server that is stopped notes this in the cache's file LOCK before its clients notice. A server that was killed can't. So every process that needs the server
knows which of the two happened, even a new worker of a loader that was never connected to it.
"""

from __future__ import annotations

import logging
import math
import os
import shlex
import time
from collections.abc import Callable

from ..errors import Error, printable
from .cache_lock import POLL, Lock
from .trust import open_file

_log = logging.getLogger("lcache")

PATIENCE = 10.0  # seconds after the note


class Revival:
    """The start of a server to replace one that ended while a program used it."""

    def __init__(self, until: float) -> None:
        """until: the end of the wait for another server, in seconds of time.monotonic. The wait may end earlier."""
        self._until = until
        self._was_stopped = False

    def await_another(self, dirs: tuple[str, ...], lock: Lock, listens: Callable[[], bool]) -> None:
        """Waits while another server may replace one that was stopped. This process holds the lock, and other processes wait for it."""
        while (left := min(_seconds_left(dirs[0]), self._until - time.monotonic())) > 0 and not listens():
            self._was_stopped = True
            lock.write_activity(f"the server was stopped: waiting {math.ceil(left)} s for another one")
            time.sleep(POLL)

    def log_start(self, source: str, dirs: tuple[str, ...], pid: int) -> None:
        """Logs that this process started the server."""
        text = f"its server had ended: started it again (pid {pid})"
        if self._was_stopped:
            cache = shlex.quote(",".join(dirs))
            text = f"its server was stopped, and no other one came: started one again (pid {pid}); `lcache serve --take-over --cache {cache}` replaces it"
        _log.warning(printable(f"{source}: {text}"))


def _seconds_left(folder: str) -> float:
    """The seconds that are left for another server of the cache to start. Below 0: none, or the last server was not stopped."""
    try:
        fd = open_file(os.path.join(folder, "LOCK"), os.O_RDONLY)
    except (OSError, Error):
        return -1.0
    try:
        written, noted = os.read(fd, 128), os.fstat(fd).st_mtime
    finally:
        os.close(fd)
    if written.split(b"\n")[1:2] != [b"stopped"]:
        return -1.0
    return min(PATIENCE, noted + PATIENCE - time.time())
