"""All memory that clients can make a server use is part of its --memory, and all its files are part of its budget. Measured from outside, with 64 greedy jobs."""

import contextlib
import json
import struct
import threading

from realserver import Folder
from wire import ERROR, GET, HEADER, JSON, NOWHERE, PUSH, Wire

JOB, IMPORTANCE = 16, 17
MEMORY = 100_000_000
SAMPLES = 4000


class Client(Wire):
    """A connection with its own job."""

    def __init__(self, path, token):
        super().__init__(path)
        self.hello()
        kind, body = self.ask(JOB, {"token": token}, job=0)
        assert kind == JSON, body
        self.job = json.loads(body)["job"]

    def put(self, kind, body, job):
        self._requests += 1
        self.socket.sendall(HEADER.pack(8 + len(body), 1, kind, job, self._requests + 1) + body)

    def ask(self, kind, body, job):
        self.put(kind, body if isinstance(body, bytes) else json.dumps(body).encode(), job)
        return self.receive()


def memory(pid):
    """The resident private and shared bytes of a process."""
    with open(f"/proc/{pid}/status") as f:
        lines = dict(line.split(":", 1) for line in f)
    return sum(int(lines[name].split()[0]) * 1024 for name in ("RssAnon", "RssShmem"))


class Watch:
    """The peak memory of a process, sampled all the time."""

    def __init__(self, pid):
        self.most, self._ends = 0, threading.Event()
        self._thread = threading.Thread(target=self._look, args=(pid,))

    def _look(self, pid):
        while not self._ends.wait(0.02):
            self.most = max(self.most, memory(pid))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ends.set()
        self._thread.join()


def states(clients):
    """Each job requests importance under its own name. Returns the number that got it."""
    got = 0
    for number, client in enumerate(clients):
        kind, _ = client.ask(IMPORTANCE, {"method": "impact", "name": f"trial-{number}", "cache": 0, "rank": 0, "run": "x"}, client.job)
        got += kind != ERROR
    return got


def orders(clients):
    """Each job pushes orders until it is refused."""
    pushed = 0
    order = struct.pack("<400000I", *(list(range(SAMPLES)) * 100))
    for client in clients:
        for epoch in range(20):
            kind, _ = client.ask(PUSH, struct.pack("<6I", epoch, 0, 0, 0, 1, 400_000) + order, client.job)
            if kind == ERROR:
                break
            pushed += len(order)
    return pushed


def unread(clients):
    """Each sends small requests, and reads no answer."""
    body = struct.pack("<4I200I", NOWHERE, NOWHERE, NOWHERE, 200, *range(200))
    for client in clients:
        client.socket.settimeout(0.1)
        with contextlib.suppress(OSError):
            for _ in range(200):
                client.put(GET, body, client.job)


def halves(clients):
    """Each begins a long frame, and does not end it."""
    for client in clients:
        client.socket.settimeout(0.1)
        with contextlib.suppress(OSError):
            client.socket.sendall(HEADER.pack(8 + (12 << 20), 1, PUSH, client.job, 7) + bytes(6 << 20))


def test_64_jobs_stay_within_memory_and_budget(serve, trees):
    folder = Folder(f"{trees}/many", [1000] * SAMPLES)
    cache = serve(folder, batch_size=16, epochs=1000, memory=str(MEMORY))
    with contextlib.ExitStack() as stack, Watch(cache.process.pid) as watch:
        clients = [stack.enter_context(Client(cache.socket, f"job-{k}")) for k in range(64)]
        assert states(clients) >= 1
        assert orders(clients[::-1]) >= 1_600_000
        unread(clients[:32])
        halves(clients[32:])
        with cache.connect(timeout=60) as job:  # others are still served
            cache.check(job.get([1, 2, 3]), [1, 2, 3])
    assert watch.most <= 1.1 * MEMORY
    assert cache.used() <= cache.report["budget_bytes"]
