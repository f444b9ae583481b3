"""A client that is written from docs/protocol.md alone, for frames that lcache's client would never send."""

import array
import json
import mmap
import os
import socket
import struct

HELLO, CHUNK, GET, RELEASE, PUSH, STATUS, NAMES, BYE, CANCEL = range(1, 10)
JSON, BATCH, END, NAMES_ANSWER, OK, ERROR = 129, 130, 131, 132, 133, 255
HEADER = struct.Struct("<IBBHI")
NOWHERE = 0xFFFFFFFF


def frame(kind, request, body=b"", version=1):
    return HEADER.pack(8 + len(body), version, kind, 0, request) + body


class Wire:
    """A connection. After hello() it has a session, and the shared memory mapped."""

    def __init__(self, path, timeout=20.0):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(timeout)
        self.socket.connect(path)
        self.info = self.fd = self.map = None
        self._requests = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
        if self.map is not None:
            self.map.close()
            os.close(self.fd)

    def hello(self, token=None):
        self.socket.sendall(frame(HELLO, 1, json.dumps({"protocol": 1, "client": "by hand", "token": token or ""}).encode()))
        data, extra, _, _ = self.socket.recvmsg(HEADER.size, socket.CMSG_SPACE(4))
        (_, kind, fds), = extra
        assert kind == socket.SCM_RIGHTS
        self.fd, = array.array("i", fds)
        length, _, kind, _, _ = HEADER.unpack(data)
        body = self._exactly(length - 8)
        assert kind == JSON, body
        self.info = json.loads(body)
        self.map = mmap.mmap(self.fd, os.fstat(self.fd).st_size, mmap.MAP_SHARED, mmap.PROT_READ)
        return self

    def send(self, kind, body=b""):
        self._requests += 1
        self.socket.sendall(frame(kind, self._requests + 1, body))

    def receive(self):
        """The next answer as (type, body); (None, b"") if the server has closed the connection."""
        head = self._exactly(HEADER.size)
        if not head:
            return None, b""
        length, _, kind, _, _ = HEADER.unpack(head)
        return kind, self._exactly(length - 8)

    def error(self):
        """The next answer, which must be an ERROR, followed by the end of the stream."""
        kind, body = self.receive()
        assert kind == ERROR, (kind, body)
        assert self.receive() == (None, b"")
        return json.loads(body)

    def chunk(self, epoch, rank, batch):
        self.send(CHUNK, struct.pack("<III", epoch, rank, batch))
        return self._batch()

    def get(self, indices):
        self.send(GET, struct.pack(f"<IIII{len(indices)}I", NOWHERE, NOWHERE, NOWHERE, len(indices), *indices))
        return self._batch()

    def _batch(self):
        """(lease, [(index, offset, length), …])"""
        kind, body = self.receive()
        assert kind == BATCH, body
        lease, count, _ = struct.unpack_from("<QII", body)
        columns = struct.unpack_from(f"<{count}Q{count}I{count}I{count}i", body, 16)
        return lease, list(zip(columns[2 * count : 3 * count], columns, columns[count:]))

    def release(self, lease):
        self.send(RELEASE, struct.pack("<IQ", 1, lease))

    def same(self, samples, contents):
        """Asserts that shared memory has the samples' bytes."""
        return all(self.map[offset : offset + length] == contents[index] for index, offset, length in samples)

    def _exactly(self, n):
        data = b""
        while len(data) < n:
            try:
                part = self.socket.recv(n - len(data))
            except ConnectionResetError:
                part = b""
            if not part:
                assert not data, f"the stream ended within a frame, after {data!r}"
                return b""
            data += part
        return data
