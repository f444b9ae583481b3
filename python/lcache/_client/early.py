"""Requests that are sent ahead of their need, so that the server prepares a batch while the program works on another one."""

from __future__ import annotations

from array import array

from ..errors import Error
from . import protocol
from .link import Link
from .server_errors import NoRoom
from .session import Request

_ROOM = 3  # batches that the server must have room for: the program may keep one, and another loader need one


class EarlyRequest:
    """At most one GET of a link that was sent ahead of its need. Threads may share it."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._sent: dict[bytes, Request] = {}  # by its body

    def send(self, wanted: array[int], at: tuple[int, int, int], size: int) -> None:
        """Sends the request of a batch that is likely to be needed next. Another one that waits is dropped.

        size is about how many bytes the batch has. Where the server has no room for it, nothing is sent.
        """
        self.drop()
        if _ROOM * size > self._link.info.credit_bytes or len(wanted) > protocol.MAX_BATCH:
            return
        request = get_request(wanted, at)
        try:
            self._link.send_early(request)
        except Error:
            return  # the loop sends the request when it needs the batch, and gets the error
        if request.session is not None:
            self._sent[request.body] = request

    def drop(self) -> None:
        """Drops the request, and the lease of its answer."""
        while self._sent:
            try:
                _, request = self._sent.popitem()
            except KeyError:
                return  # another thread took it
            if request.session is not None:
                request.session.drop(request)

    def answer(self, body: bytes, deadline: float) -> tuple[Request, int, bytes] | None:
        """The answer to the request with that body, and the request. None: it was not sent, or has to be repeated to learn how it ends now."""
        request = self._sent.pop(body, None)
        if request is None or request.session is None:
            return None
        if request.session is not self._link.session:  # another process's, or that of an earlier server
            request.session.drop(request)
            return None
        try:
            return request, *self._link.answer(request, deadline)
        except NoRoom:
            raise
        except Error:
            return None


def get_request(wanted: array[int], at: tuple[int, int, int]) -> Request:
    """The request of a batch by index."""
    return Request(protocol.GET, protocol.get(wanted.tobytes(), at), f"{len(wanted)} samples by index")
