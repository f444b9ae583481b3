"""Private copies of a request's samples, if leases leave no room for them. The server then lends the samples in parts, each by a temporary lease (LEND)."""

from __future__ import annotations

from array import array

from ..errors import ProtocolError
from . import protocol
from .link import Link, require_kind
from .server_errors import LoanOver
from .session import Request, Session


def copy_by_loans(link: Link, request: Request) -> tuple[protocol.Columns, list[memoryview], Session] | None:
    """The columns of a CHUNK or GET request, copies of its samples, and the session that lent the last of them. None at the end of an epoch."""
    deadline = link.deadline()
    copies: list[memoryview] = []
    lengths: list[int] = []
    indices, labels, requested = array("I"), array("i"), array("I")
    session: Session | None = None
    after, total = 0, -1  # requested samples that are copied, and all of them
    while after != total:
        loan = Request(protocol.LEND, protocol.lend(request.kind, after, request.body), request.what)
        kind, body = link.answer(loan, deadline)
        session = loan.session
        assert session is not None
        if kind == protocol.A_END:
            return None
        if kind != protocol.A_SERVED_LOAN:
            require_kind(loan, kind, protocol.A_LOAN)
        columns, end, size = protocol.read_loan(body, after, session.memory.size, session.info.samples, kind == protocol.A_SERVED_LOAN)
        if total not in (-1, size) or (end - after != len(columns.lengths) and session.info.on_error != "skip"):
            raise ProtocolError(f"{request.what}: the server lent {len(columns.lengths)} samples from {after} to {end} of {size}, of {total} before")
        lent = session.copies(columns)
        if not _lasted(link, loan, columns, deadline):
            continue
        copies += lent
        lengths += columns.lengths
        indices.frombytes(columns.indices.tobytes())
        labels.frombytes(columns.labels.tobytes())
        requested.frombytes((columns.indices if columns.requested is None else columns.requested).tobytes())
        after, total = end, size
    assert session is not None
    return protocol.Columns(0, 0, (), tuple(lengths), memoryview(indices), memoryview(labels), memoryview(requested)), copies, session


def _lasted(link: Link, loan: Request, columns: protocol.Columns, deadline: float) -> bool:
    """Whether the temporary lease still held when its bytes had been copied. A server that was restarted meanwhile does not know the lease."""
    done = Request(protocol.COPIED, protocol.copied(columns.lease), loan.what)
    try:
        require_kind(done, link.answer(done, deadline)[0], protocol.A_OK)
    except LoanOver:
        return False
    return done.session is loan.session
