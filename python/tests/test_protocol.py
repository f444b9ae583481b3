"""Compares the codec with frames that were made by hand. The server's tests use the same file."""

import pathlib
import struct

import pytest

from lcache import ProtocolError
from lcache._client import protocol
from lcache._client.parts import all_parts, read_parts

GOLDENS = pathlib.Path(__file__).parents[2] / "server" / "testdata" / "frames.txt"


def u32(*numbers):
    return b"".join(n.to_bytes(4, "little") for n in numbers)


@pytest.fixture(scope="module")
def frames():
    if not GOLDENS.exists():
        pytest.skip(f"{GOLDENS} is not here: this is not a full checkout")
    found = {}
    for line in GOLDENS.read_text().splitlines():
        name, colon, digits = line.partition(":")
        if colon and not line.startswith("#"):
            found[name] = bytes.fromhex(digits.replace(" ", ""))
    return found


def test_requests(frames):
    p = protocol
    none = (p.NOWHERE,) * 3
    made = {
        "hello": p.frame(p.HELLO, 1, p.hello("t", None)),
        "chunk": p.frame(p.CHUNK, 2, p.chunk(3, 1, 17)),
        "get": p.frame(p.GET, 3, p.get(u32(5, 3, 9), (3, 1, 17))),
        "get-nowhere": p.frame(p.GET, 4, p.get(u32(5), none)),
        "release": p.frame(p.RELEASE, 0, p.release([1, (1 << 63) - 1])),
        "push": p.frame(p.PUSH, 5, p.push(2, 1, 0, True, u32(2, 0, 1), u32(7, 8, 9))),
        "status": p.frame(p.STATUS, 6),
        "names": p.frame(p.NAMES, 7, p.names(u32(5, 3))),
        "parts": p.frame(p.PARTS, 8, p.parts(u32(5, 3))),
        "labels": p.frame(p.LABELS, 12, p.labels(2, 5)),
        "lend-chunk": p.frame(p.LEND, 9, p.lend(p.CHUNK, 64, p.chunk(3, 1, 17))),
        "lend-get": p.frame(p.LEND, 10, p.lend(p.GET, 1, p.get(u32(5, 3), (3, 1, 17)))),
        "copied": p.frame(p.COPIED, 11, p.copied((1 << 63) + 7)),
        "observe": p.frame(p.OBSERVE, 0, p.observe(p.LOSSES, 1, 3, 17, u32(5, 9), struct.pack("<2f", 0.5, 2.25))),
        "epoch-end": p.frame(p.EPOCH_END, 0, p.epoch_end(3, 1, 0.5, None)),
        "reevaluate": p.frame(p.REEVALUATE, 15, p.page(p.NOWHERE, 1, 64, 256)),
        "order": p.frame(p.ORDER, 16, p.page(3, 1, 64, 256)),
        "weights": p.frame(p.WEIGHTS, 17, p.weights(3, u32(5, 9))),
        "bye": p.frame(p.BYE, 0),
        "cancel": p.frame(p.CANCEL, 0, p.cancel([2])),
        "job": p.frame(p.JOB, 13, p.job("train")),
        "chunk-job": p.frame(p.CHUNK, 14, p.chunk(3, 1, 17), 258),
        "report": p.frame(p.REPORT, 0, p.report(dict(epoch=3, rank=1, loop_wait_seconds=0.5, loop_seconds=2.25, decode_seconds=1.0, workers=4))),
    }
    for name, frame in made.items():
        assert frame.hex() == frames[name].hex(), name


def body(frame, kind, request):
    assert protocol.header(frame) == (len(frame) - 4, kind, request)
    return frame[12:]


def test_answers(frames):
    p = protocol
    assert p.read_json(body(frames["json"], p.A_JSON, 1)) == {}
    columns = p.read_batch(body(frames["batch"], p.A_BATCH, 2), 1 << 32, 10)
    assert columns.lease == (1 << 63) + 7
    assert columns.pinned == 1024
    assert [list(c) for c in columns[2:6]] == [[4096, 1 << 32], [3, 0], [5, 9], [-1, 2]]
    assert columns.requested is None
    assert p.read_lease(body(frames["batch"], p.A_BATCH, 2)) == columns.lease
    for name, parts in (("batch", None), ("batch-parts", [[("jpg", 0, 2), ("x", 2, 3)], [("", 0, 0)]])):
        columns = p.read_batch(body(frames[name], p.A_BATCH, 2), 1 << 32, 10, parts=True)
        assert [list(c) for c in columns[2:6]] == [[4096, 1 << 32], [3, 0], [5, 9], [-1, 2]]
        assert (columns.parts if parts is None else all_parts(columns.parts, columns.lengths)) == parts
    columns, after, total = p.read_loan(body(frames["loan"], p.A_LOAN, 9), 64, 1 << 32, 10)
    assert (columns.lease, after, total) == ((1 << 63) + 7, 66, 256)
    assert [list(c) for c in columns[2:6]] == [[4096, 1 << 32], [3, 0], [5, 9], [-1, 2]]
    columns = p.read_batch(body(frames["served"], p.A_SERVED, 2), 1 << 32, 10, served=True)
    assert [list(c) for c in columns[2:7]] == [[4096, 1 << 32], [3, 0], [5, 9], [-1, 2], [5, 8]]
    columns, after, total = p.read_loan(body(frames["served-loan"], p.A_SERVED_LOAN, 9), 64, 1 << 32, 10, served=True)
    assert [list(c) for c in columns[2:7]] == [[4096, 1 << 32], [3, 0], [5, 9], [-1, 2], [5, 8]]
    assert body(frames["end"], p.A_END, 2) == body(frames["ok"], p.A_OK, 5) == b""
    assert p.read_names(body(frames["names-are"], p.A_NAMES, 7), 2) == ["a", "\udcff/b"]
    assert read_parts(body(frames["parts-are"], p.A_PARTS, 8), [4, 9]) == [[("jpg", 0, 3), ("x", 3, 4)], [("", 0, 9)]]
    assert p.read_labels(body(frames["labels-are"], p.A_LABELS, 12), 5).tolist() == [-1, 2]
    total, indices = p.read_indices(body(frames["indices-are"], p.A_INDICES, 16), 64, 256, 10)
    assert (total, indices.tolist()) == (100, [5, 9])
    assert p.read_weights(body(frames["weights-are"], p.A_WEIGHTS, 17), 2).tolist() == [0.5, 1.5]
    assert p.read_error(body(frames["error-before"], p.A_ERROR, 2)) == ("sample", "gone", "a/b.jpg", None, None)
    assert p.read_error(body(frames["error"], p.A_ERROR, 2)) == ("sample", "gone", "a/b.jpg", "not_found", "LC002")


@pytest.mark.parametrize(("memory", "samples"), [((1 << 32) - 1, 10), (1 << 32, 9)])
def test_batch_is_held_to_its_limits(frames, memory, samples):
    with pytest.raises(ProtocolError):
        protocol.read_batch(frames["batch"][12:], memory, samples)


def test_every_truncation_is_refused(frames):
    readers = {
        "loan": lambda b: protocol.read_loan(b, 64, 1 << 40, 100),
        "batch": lambda b: protocol.read_batch(b, 1 << 40, 100),
        "served-loan": lambda b: protocol.read_loan(b, 64, 1 << 40, 100, served=True),
        "served": lambda b: protocol.read_batch(b, 1 << 40, 100, served=True),
        "names-are": lambda b: protocol.read_names(b, 2),
        "parts-are": lambda b: read_parts(b, [4, 9]),
    }
    for name, read in readers.items():
        whole = frames[name][12:]
        read(whole)
        for n in range(len(whole)):
            with pytest.raises(ProtocolError):
                read(whole[:n])
