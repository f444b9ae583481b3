"""Encodes and decodes frames of the lcache protocol, version 1, without I/O (docs/protocol.md is the reference).

It checks every value that a server sends: a body must have exactly the columns that it announces. Otherwise it raises ProtocolError.
"""

from __future__ import annotations

import json
import math
import struct
from array import array
from operator import add
from typing import Any, NamedTuple

from ..errors import ProtocolError

VERSION = 1
MAX_FRAME = 16 << 20  # bytes that the length field counts

HELLO, CHUNK, GET, RELEASE, PUSH, STATUS, NAMES, BYE, CANCEL, REPORT, PARTS, LEND, COPIED = range(1, 14)
A_JSON, A_BATCH, A_END, A_NAMES, A_OK, A_PARTS, A_LOAN = range(129, 136)
LABELS, A_LABELS = 15, 137
JOB = 16
IMPORTANCE, OBSERVE, EPOCH_END, REEVALUATE, ORDER, WEIGHTS = range(17, 23)
A_INDICES, A_WEIGHTS = 138, 139
A_SERVED, A_SERVED_LOAN = 140, 141  # A_BATCH and A_LOAN with substitutes: samples that are served in place of others
LOSSES, COUNTS, REEVALUATED = 1, 2, 3  # kinds of observations
MAX_OBSERVED = 65536  # samples in one observation
OF_JOB = frozenset((CHUNK, GET, PUSH, LEND, REPORT, IMPORTANCE, OBSERVE, EPOCH_END, REEVALUATE, ORDER, WEIGHTS))  # the requests that belong to a job
MAX_TOKEN = 128  # bytes of a job's token
A_ERROR = 255

NOWHERE = 0xFFFFFFFF  # above every epoch, rank and batch number
NO_POSITION = (NOWHERE, NOWHERE, NOWHERE)
MAX_BATCH = (MAX_FRAME - 8 - 20) // 20  # samples: the answer has 20 bytes of columns for each
MAX_WEIGHTS = (MAX_FRAME - 8 - 8) // 4
PUSH_PIECE = 1 << 20  # indices or batches in one PUSH frame; a third of what fits

HEADER = struct.Struct("<IBBHI")  # length, version, type, flags, request
_TWO = struct.Struct("<II")
_THREE = struct.Struct("<III")
_FOUR = struct.Struct("<IIII")
_FIVE = struct.Struct("<IIIII")
_BATCH = struct.Struct("<QII")
_LOAN = struct.Struct("<QIII")
_U64 = struct.Struct("<Q")
_U32 = struct.Struct("<I")
_OBSERVE = struct.Struct("<BBHIII")


class Columns(NamedTuple):
    """A BATCH answer: a lease, and columns of the same length. Offsets and lengths are bytes in the shared memory."""

    lease: int
    pinned: int  # bytes of shared memory that the lease holds, at least the sum of the lengths
    offsets: tuple[int, ...]  # u64
    lengths: tuple[int, ...]  # u32
    indices: memoryview  # u32
    labels: memoryview  # i32
    requested: memoryview | None = None  # u32: the requested samples, if these are substitutes; None: the same
    parts: memoryview | None = None  # the body of PARTS for these samples; None: not sent with the batch


class Failure(NamedTuple):
    """An ERROR answer."""

    kind: str
    message: str
    sample: str | None = None
    reason: str | None = None  # why the sample can't be read: "not_found" or "permission"
    code: str | None = None  # None: from an older server


def frame(kind: int, request: int, body: bytes = b"", job: int = 0) -> bytes:
    """One frame, ready to be sent. job is the connection's number of the request's job; some types of requests belong to no job."""
    return HEADER.pack(8 + len(body), VERSION, kind, job if kind in OF_JOB else 0, request) + body


def hello(client: str, token: str | None) -> bytes:
    """client names the program, for messages. token: the server continues the leases of an earlier connection."""
    fields: dict[str, Any] = {"protocol": VERSION, "client": client, "features": ["lend", "requested", "parts"]}
    if token:
        fields["token"] = token
    return json.dumps(fields).encode()


def chunk(epoch: int, rank: int, batch: int) -> bytes:
    return _THREE.pack(epoch, rank, batch)


def get(indices: bytes, at: tuple[int, int, int]) -> bytes:
    """indices are u32 little-endian, at most MAX_BATCH of them. at is (epoch, rank, batch) or NO_POSITION."""
    return _FOUR.pack(*at, len(indices) // 4) + indices


def release(leases: list[int]) -> bytes:
    return struct.pack(f"<I{len(leases)}Q", len(leases), *leases)


def cancel(requests: list[int]) -> bytes:
    return struct.pack(f"<{len(requests) + 1}I", len(requests), *requests)


def push(epoch: int, rank: int, first: int, more: bool, sizes: bytes, indices: bytes) -> bytes:
    """Batches of an order from number first on. sizes and indices are u32 little-endian. more: another PUSH continues the same order."""
    return _FIVE.pack(epoch, rank, first, more, len(sizes) // 4) + sizes + indices


def names(indices: bytes) -> bytes:
    return _U32.pack(len(indices) // 4) + indices


parts = names  # the same body


def labels(first: int, count: int) -> bytes:
    """Requests the labels of count samples from index `first` on."""
    return _TWO.pack(first, count)


def lend(kind: int, first: int, body: bytes) -> bytes:
    """Borrows the samples of a CHUNK or GET request with that type and body, from position first of its samples on."""
    return _TWO.pack(kind, first) + body


def copied(loan: int) -> bytes:
    return _U64.pack(loan)


def job(token: str) -> bytes:
    """Names a job. The answer has its number on this connection."""
    return json.dumps({"token": token}).encode()


def read_job(body: bytes) -> int:
    """The number in the answer to JOB."""
    number = read_json(body).get("job")
    if type(number) is not int or not 0 < number < 1 << 16:
        raise ProtocolError(f"the server answered JOB with the number {number!r:.40}")
    return number


def report(fields: dict[str, float]) -> bytes:
    return json.dumps(fields).encode()


def header(data: bytes | bytearray, at: int = 0) -> tuple[int, int, int]:
    """(length, type, request) of the 12 bytes at `at`. An ERROR is accepted from any version: its layout is frozen."""
    length, version, kind, flags, request = HEADER.unpack_from(data, at)
    if not 8 <= length <= MAX_FRAME:
        raise ProtocolError(f"frame length {length} is not 8 to {MAX_FRAME}: the socket is not that of an lcache server, or the server is faulty")
    if kind != A_ERROR and version != VERSION:
        raise ProtocolError(f"the server has protocol {version}, and this client protocol {VERSION}: install the client and the program of one release")
    if kind != A_ERROR and flags:
        raise ProtocolError(f"frame flags {flags:#x} are unknown in protocol {VERSION}: install the client and the program of one release")
    return length, kind, request


def observe(kind: int, rank: int, epoch: int, batch: int, indices: bytes, losses: bytes) -> bytes:
    """The losses of one batch. indices are u32 and losses f32, both little-endian, one for each sample."""
    return _OBSERVE.pack(kind, 0, rank, epoch, batch, len(indices) // 4) + indices + losses


def counts(rank: int, epoch: int, batch: int, indices: bytes, same: bytes, other: bytes, node: int, near: bytes) -> bytes:
    """The neighbours of one batch: u32, u16 and u16, one for each sample. near are the u32 neighbours of node; NOWHERE: there is none."""
    return _OBSERVE.pack(COUNTS, 0, rank, epoch, batch, len(indices) // 4) + indices + same + other + _TWO.pack(node, len(near) // 4) + near


def epoch_end(epoch: int, rank: int, accuracy: float | None, loss: float | None, unsent: dict[str, Any] | None = None) -> bytes:
    """unsent describes observations that were not sent: docs/protocol.md has its keys."""
    numbers = {name: x if x is not None and math.isfinite(x) else None for name, x in (("accuracy", accuracy), ("loss", loss))}
    return json.dumps({"epoch": epoch, "rank": rank, **(unsent or {}), **numbers}).encode()


def page(epoch: int, rank: int, first: int, count: int) -> bytes:
    """Requests a part of a list of indices: of ORDER, or of REEVALUATE, which needs no epoch."""
    return _FOUR.pack(epoch, rank, first, count)


def weights(epoch: int, indices: bytes) -> bytes:
    return _TWO.pack(epoch, len(indices) // 4) + indices


def read_indices(body: bytes, first: int, asked: int, samples: int) -> tuple[int, memoryview]:
    """(the length of a list of indices, the indices from place first on). There may be fewer than requested, but at least one unless the list has ended."""
    total, count = _TWO.unpack_from(body) if len(body) >= _TWO.size else (-1, 0)
    if total < 0 or count > asked or len(body) != _TWO.size + 4 * count or first + count > total or (count == 0 and first < total):
        raise ProtocolError(f"an answer of {len(body)} bytes does not hold indices from {first} on")
    indices = memoryview(body)[_TWO.size :].cast("I")
    if count and max(indices) >= samples:
        raise ProtocolError(f"an order has index {max(indices)}, and the dataset has {samples} samples")
    return total, indices


def read_weights(body: bytes, asked: int) -> array[float]:
    if len(body) != 4 + 4 * asked or _U32.unpack_from(body)[0] != asked:
        raise ProtocolError(f"weights answer of {len(body)} bytes does not hold {asked} weights")
    result = array("f")
    result.frombytes(body[4:])
    if not all(0 <= weight < math.inf for weight in result):
        raise ProtocolError("a weights answer has a value that is not a weight")
    return result


def read_importance(body: bytes) -> dict[str, Any]:
    """The answer to IMPORTANCE, with the keys that the client uses checked."""
    said = read_json(body)
    for key, least in (("world_size", 1), ("batch_size", 1), ("epoch_length", 0)):
        if type(said.get(key)) is not int or said[key] < least:
            raise ProtocolError(f"the server answered importance with {key} {said.get(key)!r}")
    if not isinstance(said.get("ignored", []), list):
        raise ProtocolError(f"the server answered importance with ignored {said['ignored']!r}")
    return said


def read_json(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as e:
        raise ProtocolError(f"answer is not JSON: {e}") from None
    if not isinstance(value, dict):
        raise ProtocolError(f"answer is a JSON {type(value).__name__}, not an object")
    return value


def read_error(body: bytes) -> Failure:
    fields = read_json(body)
    sample, reason, code = (None if fields.get(key) is None else str(fields[key]) for key in ("sample", "reason", "code"))
    return Failure(str(fields.get("kind")), str(fields.get("message")), sample, reason, code)


def read_lease(body: bytes) -> int | None:
    """The lease of a BATCH whose other columns are not needed; None if the body is too short."""
    return _BATCH.unpack_from(body)[0] if len(body) >= _BATCH.size else None


def read_batch(body: bytes, memory_bytes: int, samples: int, served: bool = False, parts: bool = False) -> Columns:
    """The columns of a BATCH, or of a SERVED; parts: of a dataset with parts, whose boundaries are not read here.

    Raises ProtocolError unless each sample is within memory_bytes and each index is below samples.
    """
    if len(body) < _BATCH.size:
        raise ProtocolError(f"batch answer of {len(body)} bytes is shorter than its head")
    lease, count, kib = _BATCH.unpack_from(body)
    end = _BATCH.size + (24 if served else 20) * count
    columns = _columns(memoryview(body)[:end] if parts else body, _BATCH.size, lease, count, kib << 10, memory_bytes, samples, served)
    return columns._replace(parts=memoryview(body)[end:]) if parts and len(body) > end else columns


def read_loan(body: bytes, first: int, memory_bytes: int, samples: int, served: bool = False) -> tuple[Columns, int, int]:
    """The columns of a LOAN or SERVEDLOAN from position first of a request on, the position after it, and the number of samples in the request."""
    if len(body) < _LOAN.size:
        raise ProtocolError(f"loan answer of {len(body)} bytes is shorter than its head")
    loan, count, after, total = _LOAN.unpack_from(body)
    if not first + min(count, 1) <= after <= total <= MAX_BATCH or count > after - first or after == first < total:
        raise ProtocolError(f"loan answer of {count} samples goes from position {first} to {after} of {total}")
    return _columns(body, _LOAN.size, loan, count, 0, memory_bytes, samples, served), after, total


def _columns(body: bytes | memoryview, at: int, lease: int, count: int, pinned: int, memory_bytes: int, samples: int, served: bool) -> Columns:
    """The columns that begin at `at`."""
    if len(body) != at + (24 if served else 20) * count:
        raise ProtocolError(f"batch answer of {len(body)} bytes does not hold {count} samples")
    # The client reads offsets and lengths several times, so they are tuples, which are fastest to make and to read. Only the caller reads indices and labels.
    offsets = struct.unpack_from(f"<{count}Q", body, at)
    lengths = struct.unpack_from(f"<{count}I", body, at + 8 * count)
    view = memoryview(body)[at + 12 * count :]
    requested = view[8 * count :].cast("I") if served else None
    columns = Columns(lease, max(pinned, sum(lengths)), offsets, lengths, view[: 4 * count].cast("I"), view[4 * count : 8 * count].cast("i"), requested)
    if count:
        # Python's integers do not wrap, so a sum beyond 2^64 is also found. The first test is cheaper, and nearly always enough.
        if max(offsets) + max(lengths) > memory_bytes:
            end = max(map(add, offsets, lengths))
            if end > memory_bytes:
                raise ProtocolError(f"batch answer points to byte {end} of {memory_bytes} bytes of shared memory")
        last = max(map(max, (columns.indices, requested or columns.indices)))
        if last >= samples:
            raise ProtocolError(f"batch answer has index {last}, and the dataset has {samples} samples")
    return columns


def read_names(body: bytes, asked: int) -> list[str]:
    """Names as str. Bytes that are not UTF-8 become surrogates, as in os.fsdecode. There may be fewer names than requested, but at least one."""
    count = _U32.unpack_from(body)[0] if len(body) >= 4 else -1
    if not min(asked, 1) <= count <= asked or len(body) < 4 + 4 * count:
        raise ProtocolError(f"names answer of {len(body)} bytes does not hold 1 to {asked} names")
    start = 4 + 4 * count
    result = []
    for length in memoryview(body)[4:start].cast("I"):
        result.append(body[start : start + length].decode("utf-8", "surrogateescape"))
        start += length
    if start != len(body):
        raise ProtocolError(f"names answer of {len(body)} bytes should have {start}")
    return result


def read_labels(body: bytes, asked: int) -> memoryview:
    """Labels, i32. There may be fewer than requested, but at least one."""
    count = _U32.unpack_from(body)[0] if len(body) >= 4 else -1
    if not min(asked, 1) <= count <= asked or len(body) != 4 + 4 * count:
        raise ProtocolError(f"labels answer of {len(body)} bytes does not hold 1 to {asked} labels")
    return memoryview(body)[4:].cast("i")
