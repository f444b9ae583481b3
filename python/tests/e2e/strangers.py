"""Clients that speak nothing that lcache understands: strangers.py HOST PORT COUNT SEED. At most 400 of them are connected at once."""

import collections
import random
import socket
import struct
import sys

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def main():
    host, port, count, seed = sys.argv[1], *map(int, sys.argv[2:])
    draw = random.Random(seed)
    beginnings = [
        lambda: b"",
        lambda: draw.randbytes(draw.randrange(1, 2000)),
        lambda: PREFACE[: draw.randrange(len(PREFACE))],
        lambda: PREFACE + struct.pack(">I", 0xFFFFFF00) + b"\0" * 5,  # a frame of 16 MiB
        lambda: b"\x16\x03\x01" + struct.pack(">H", draw.randrange(65536)),  # TLS that announces more than it sends
        lambda: bytes([draw.randrange(256)]) + struct.pack(">I", 0xFFFFFFFF),  # a message of gossip, of 4 GiB
        lambda: b"\x0c" + bytes([255]) + b"x" * 255,  # a label of gossip
    ]
    open_now, refused = collections.deque(), 0
    for n in range(count):
        try:
            client = socket.create_connection((host, port), timeout=5)
            client.sendall(beginnings[n % len(beginnings)]())
            open_now.append(client)
        except OSError:
            refused += 1
        if n % 10 == 0 and open_now:  # a slow one sends another byte
            try:
                open_now[draw.randrange(len(open_now))].send(b"x")
            except OSError:
                pass
        if len(open_now) > 400:
            open_now.popleft().close()
    print(f"{count} connections, {refused} refused")


main()
