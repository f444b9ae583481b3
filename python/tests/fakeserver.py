"""A server of the protocol in a few lines, for the client's tests: real sockets, real sealed memory, and faults on demand.

A sample is a function of its index. Memory is overwritten as soon as its lease ends, which reveals a client that keeps a view
without a lease.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import threading

from lcache._client import protocol as p

BATCHES = 6  # an epoch of one rank
BATCH = 8  # samples in a batch
SAMPLES = 1000


def content(index: int) -> bytes:
    return b"%07d." % index * (index % 5 + 1) if index % 50 else b""


def order(epoch: int, rank: int, batch: int) -> list[int]:
    return [(epoch * 401 + rank * 97 + batch * BATCH + i) * 7 % SAMPLES for i in range(BATCH)]


def memory(size: int, seals: int | None = None) -> tuple[int, int]:
    """(writable, read-only) descriptors of a memfd; the writer must write before or through its own map."""
    fd = os.memfd_create("fake", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.truncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW if seals is None else seals)
    return fd, os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)


class Server:
    """Serves until stop(). Override answer() for faults. `leases` has the leases of all clients; `released` counts released leases, `byes` BYEs."""

    def __init__(self, path: str, slots: int = 64, **info: object) -> None:
        self.path, self.slots = path, slots
        self.slot_bytes = 1 << 14
        self.writable, self.readable = memory(slots * self.slot_bytes)
        self.lock = threading.Condition()
        self.leases: dict[int, int] = {}  # lease → slot
        self.first_lease = self.next_lease = int.from_bytes(os.urandom(4), "little") << 20 | 1
        self.pinned = 0  # KiB that every BATCH announces
        self.unknown_leases: list[int] = []  # released leases that this server never granted
        self.released = self.byes = self.accepted = 0
        self.requests: list[tuple[int, bytes]] = []
        self.hellos: list[dict] = []
        self.pushed: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
        self.info = {
            "protocol": 1,
            "pid": os.getpid(),
            "version": "0",
            "server": os.urandom(4).hex(),
            "token": "t1",
            "name": "fake",
            "source": "nowhere",
            "fingerprint": "f00d",
            "samples": SAMPLES,
            "epochs": 3,
            "batch_size": BATCH,
            "world": 2,
            "ranks": [0, 1],
            "drop_last": False,
            "recipe": "",
            "seed": "0",
            "classes": ["a", "b"],
            "memory_bytes": slots * self.slot_bytes,
            "credit_bytes": 1 << 20,
        }
        self.info.update(info)
        self.connections: list[socket.socket] = []
        self.listener = socket.socket(socket.AF_UNIX)
        if os.path.exists(path):
            os.unlink(path)
        self.listener.bind(path)
        self.listener.listen(64)
        self.threads = [threading.Thread(target=self._accept, daemon=True)]
        self.threads[0].start()

    def stop(self) -> None:
        self.stop_accepting()
        self.drop_connections()
        for s in self.connections:
            s.close()
        for t in self.threads:
            t.join(5)
            assert not t.is_alive()
        for fd in (self.writable, self.readable):
            os.close(fd)

    def stop_accepting(self) -> None:
        """Accepts no more; connections stay."""
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()

    def drop_connections(self) -> None:
        """Breaks all connections: clients see EOF, and leases stay."""
        for s in self.connections:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def wait_for(self, test, seconds: float = 5.0) -> bool:
        """Waits until test() is true, for frames that have no answer, such as RELEASE. False after `seconds`."""
        with self.lock:
            return self.lock.wait_for(test, seconds)

    def _accept(self) -> None:
        while True:
            try:
                s, _ = self.listener.accept()
            except OSError:
                return
            self.accepted += 1
            self.connections.append(s)
            t = threading.Thread(target=self._serve, args=(s,), daemon=True)
            self.threads.append(t)
            t.start()

    def _serve(self, s: socket.socket) -> None:
        mine: set[int] = set()
        answered: dict[int, int] = {}  # request → lease
        try:
            while True:
                head = _exactly(s, 12)
                length, _, kind, _, request = p.HEADER.unpack(head)
                body = _exactly(s, length - 8)
                with self.lock:
                    self.requests.append((kind, body))
                    self.lock.notify_all()
                if kind == p.HELLO:
                    self.hellos.append(json.loads(body))
                    self.welcome(s, request)
                elif kind == p.RELEASE:
                    self.end(mine, struct.unpack(f"<{len(body[4:]) // 8}Q", body[4:]))
                    with self.lock:
                        self.released += len(body[4:]) // 8
                elif kind == p.CANCEL:
                    self.end(mine, [answered[r] for r in memoryview(body)[4:].cast("I") if r in answered])
                elif kind == p.BYE:
                    self.end(mine, list(mine))
                    with self.lock:
                        self.byes += 1
                        self.lock.notify_all()
                    return
                else:
                    answer = self.answer(kind, body, mine)
                    if answer is not None:
                        if answer[0] == p.A_BATCH:
                            answered[request] = p.read_lease(answer[1])
                        self.send(s, p.frame(answer[0], request, answer[1]))
        except OSError:
            return  # EOF, a reset, or stop()

    def send(self, s: socket.socket, data: bytes) -> None:
        try:
            s.sendall(data)
        except OSError:
            pass  # the client is gone, but its last frames, RELEASE and BYE, are still to be read

    def welcome(self, s: socket.socket, request: int) -> None:
        socket.send_fds(s, [p.frame(p.A_JSON, request, json.dumps(self.info).encode())], [self.readable])

    def end(self, mine: set[int], leases) -> None:
        with self.lock:
            for lease in leases:
                if not self.first_lease <= lease < self.next_lease:
                    self.unknown_leases.append(lease)
                slot = self.leases.pop(lease, None)
                mine.discard(lease)
                if slot is not None:
                    os.pwrite(self.writable, b"\xee" * self.slot_bytes, slot * self.slot_bytes)
            self.lock.notify_all()

    def batch(self, indices: list[int], mine: set[int]) -> bytes:
        with self.lock:
            used = set(self.leases.values())
            slot = next(i for i in range(self.slots) if i not in used)
            lease, self.next_lease = self.next_lease, self.next_lease + 1
            self.leases[lease] = slot
            mine.add(lease)
            self.lock.notify_all()
        at, offsets, lengths = slot * self.slot_bytes, [], []
        for index in indices:
            data = content(index)
            os.pwrite(self.writable, data, at)
            offsets.append(at)
            lengths.append(len(data))
            at += len(data) + 3
        n = len(indices)
        return struct.pack(f"<QII{n}Q{n}I{n}I{n}i", lease, n, self.pinned, *offsets, *lengths, *indices, *[i % 2 for i in indices])

    def answer(self, kind: int, body: bytes, mine: set[int]) -> tuple[int, bytes] | None:
        """The answer to one request as (type, body); None: no answer."""
        if kind == p.CHUNK:
            epoch, rank, number = struct.unpack("<III", body)
            if number >= BATCHES:
                return p.A_END, b""
            return p.A_BATCH, self.batch(order(epoch, rank, number), mine)
        if kind == p.GET:
            indices = list(memoryview(body)[16:].cast("I"))
            if any(i >= SAMPLES for i in indices):
                return error("argument", "an index is too large")
            return p.A_BATCH, self.batch(indices, mine)
        if kind == p.REPORT:
            return None
        if kind == p.STATUS:
            return p.A_JSON, json.dumps({"schema": 1, "jobs": []}).encode()
        if kind == p.NAMES:
            indices = list(memoryview(body)[4:].cast("I"))[:5]  # fewer than requested, as if names were long
            names = [b"dir/%d.jpg" % i if i % 3 else b"\xff%d" % i for i in indices]
            return p.A_NAMES, struct.pack(f"<I{len(names)}I", len(names), *map(len, names)) + b"".join(names)
        if kind == p.PUSH:
            epoch, rank, first, more, count = struct.unpack_from("<IIIII", body)
            rest = list(memoryview(body)[20:].cast("I"))
            sizes, indices = self.pushed.setdefault((epoch, rank), ([], []))
            if first == 0:
                sizes, indices = self.pushed[epoch, rank] = ([], [])
            assert first == len(sizes)
            sizes += rest[:count]
            indices += rest[count:]
            return p.A_OK, b""
        return error("protocol", f"type {kind} is unknown")


def error(kind: str, message: str, **more: object) -> tuple[int, bytes]:
    return p.A_ERROR, json.dumps({"kind": kind, "message": message, **more}).encode()


def _exactly(s: socket.socket, n: int) -> bytes:
    data = b""
    while len(data) < n:
        more = s.recv(n - len(data))
        if not more:
            raise OSError("end")
        data += more
    return data
