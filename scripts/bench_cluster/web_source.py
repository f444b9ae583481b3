"""The shared source of bench-cluster: a web server with a list of samples, which sends them at one rate to all readers together.

Each sample is made when it is sent, as bench_runs.roles writes them, so no page cache answers in its place. A line of JSON on stdin, {"rate": bytes per
second, or 0 for no limit}, sets the rate. The answer is a line with what was sent since the start: {"bytes", "requests"}.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.dont_write_bytecode = True
from bench_runs.roles import content, pool_for  # noqa: E402

RANGE = re.compile(rb"\r\n[Rr]ange: bytes=(\d+)-(\d*)\r\n")


class Samples:
    """The list, and the bytes of samples by their addresses."""

    def __init__(self, count: int, size: int) -> None:
        self.count, self.size = count, size
        self.pool = pool_for(size)
        self.list = "".join(f"class{i // 1000:04d}/{i:07d}.bin\t{size}\n" for i in range(count)).encode()

    def body(self, path: bytes) -> bytes | None:
        if path == b"/list":
            return self.list
        found = re.fullmatch(rb"/class\d{4}/(\d{7})\.bin", path)
        if not found or (number := int(found[1])) >= self.count:
            return None
        return content(number, self.size, self.pool)


class Shared:
    """The rate of all connections together, and what was sent."""

    rate = 0.0
    free = 0.0  # when the line is free again
    bytes = requests = 0

    async def wait(self, length: int) -> None:
        """Waits until length more bytes have had their time on the line."""
        if not self.rate:
            return
        now = time.monotonic()
        self.free = max(self.free, now - 0.01) + length / self.rate  # 10 ms make up for timers that are late
        await asyncio.sleep(max(0.0, self.free - now))


async def serve_connection(samples: Samples, shared: Shared, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            method, path, _ = head.split(b" ", 2)
            body = samples.body(path)
            if body is None:
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                continue
            status, more, whole = b"200 OK", b"", len(body)
            if wanted := RANGE.search(head):
                first, last = int(wanted[1]), min(int(wanted[2] or whole - 1), whole - 1)
                body, status, more = body[first : last + 1], b"206 Partial Content", b"Content-Range: bytes %d-%d/%d\r\n" % (first, last, whole)
            answer = b'HTTP/1.1 %s\r\nContent-Length: %d\r\nAccept-Ranges: bytes\r\nETag: "%d"\r\n%s\r\n' % (status, len(body), samples.size, more)
            if method == b"GET" and path != b"/list":
                shared.requests += 1
                shared.bytes += len(body)
                await shared.wait(len(body))
            writer.write(answer + (body if method == b"GET" else b""))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass  # the reader is done with the connection
    finally:
        writer.close()


async def serve(o: dict[str, Any]) -> None:
    samples, shared = Samples(o["samples"], o["size"]), Shared()
    listener = socket.create_server((o["host"], 0), backlog=256)
    server = await asyncio.start_server(lambda r, w: serve_connection(samples, shared, r, w), sock=listener)
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        asked = json.loads(line)
        if "rate" in asked:
            shared.rate, shared.free = asked["rate"], 0.0
        print(json.dumps({"bytes": shared.bytes, "requests": shared.requests}), flush=True)
    server.close()


if __name__ == "__main__":
    asyncio.run(serve(json.loads(sys.argv[1])))
