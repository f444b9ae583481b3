"""The status document for callers that must not wait for the server, such as a training loop that logs metrics at each step."""

from __future__ import annotations

import time
from typing import Any

from ..errors import Error
from . import protocol
from .connection import Broken
from .link import Link
from .session import Late, Request

_EVERY = 1.0  # seconds between two requests
_PATIENCE = 0.1  # seconds that a call may wait for the answer to a request that it sends itself
_LOOK = 0.001  # seconds that a later call may wait for it
_STALE = 5.0  # seconds after which a document is not returned any longer


class StatusPoll:
    """At most one STATUS of a link, and its last answer. If the server is slow, later calls only look for the answer."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._request: Request | None = None  # sent, and not yet answered
        self._sent = self._received = float("-inf")  # seconds of time.monotonic
        self._document: dict[str, Any] | None = None

    def newest(self) -> dict[str, Any] | None:
        """The status document, at most some seconds old. None: unknown, because the server does not answer. It neither connects nor raises Error."""
        now = time.monotonic()
        if self._request is not None:
            self._receive(now + _LOOK)
        if self._request is None and now - self._sent >= _EVERY:
            request = Request(protocol.STATUS, b"", "the status")
            self._sent = now
            try:
                self._link.send_early(request)
            except Error:
                pass  # the job was closed meanwhile
            if request.session is not None:
                self._request = request
                self._receive(now + _PATIENCE)
        return self._document if now - self._received < _STALE else None

    def _receive(self, deadline: float) -> None:
        """Takes the answer if it comes before the deadline."""
        request = self._request
        session = None if request is None else request.session
        if request is None or session is None:
            return
        if session is not self._link.session:  # sent by the parent process, or to an earlier server
            self._request = None
            session.drop(request)
            return
        try:
            kind, body = session.wait(request, deadline)
            self._request = None
            if kind == protocol.A_JSON:
                self._document, self._received = protocol.read_json(body), time.monotonic()
        except Late:
            pass
        except (Broken, Error):
            self._request = None
