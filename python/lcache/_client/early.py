"""Requests that are sent early, so that the server prepares a batch while the program works on the one before."""

from __future__ import annotations

from array import array

from ..errors import Error
from . import protocol
from .link import Link
from .server_errors import NoRoom
from .session import Request

_ROOM = 3  # the server must have room for that many batches: the program may keep one, and another loader may need one


class EarlyRequest:
    """At most one GET of a link that was sent early. Threads may share it."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._sent: dict[bytes, Request] = {}  # by its body

    def send(self, wanted: array[int], at: tuple[int, int, int], size: int) -> None:
        """Sends the request of a batch that is likely to be needed next. It replaces an earlier one that was not needed.

        size is about the bytes of the batch. If the server has no room for it, nothing is sent.
        """
        self.drop()
        if _ROOM * size > self._link.info.credit_bytes or len(wanted) > protocol.MAX_BATCH:
            return
        request = get_request(wanted, at)
        try:
            self._link.send_early(request)
        except Error:
            return  # the loop sends the request later, and gets the error
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
        """The request with that body, and its answer. None: it was not sent, or must be sent again."""
        request = self._sent.pop(body, None)
        if request is None or request.session is None:
            return None
        if request.session is not self._link.session:  # sent by the parent process, or to an earlier server
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
