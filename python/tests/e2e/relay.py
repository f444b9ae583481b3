"""A relay on a bad line: relay.py HOST PORT LISTEN FAULT. It passes what comes to LISTEN to HOST:PORT, and ends when it reads a line.

FAULT: delay=SECONDS of each piece; cut=BYTES after which a connection ends, somewhere; flip=BYTES of which about one has a wrong bit. They hold for what HOST sends.
"""

import random
import socket
import sys
import threading
import time

draw = random.Random(3)
totals = {"connections": 0, "bytes": 0, "cuts": 0, "flips": 0}


def pump(source, sink, change):
    left = None
    try:
        while data := source.recv(1 << 16):
            data, left = change(data, left)
            sink.sendall(data)
            if left == 0:
                break
    except OSError:
        pass
    for end in (source, sink):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def keep(data, left):
    return data, None


def fault_of(text):
    kind, _, amount = text.partition("=")

    def delay(data, left):
        totals["bytes"] += len(data)
        time.sleep(float(amount))
        return data, None

    def cut(data, left):
        left = draw.randrange(int(amount)) + 1 if left is None else left
        totals["bytes"] += len(data)
        totals["cuts"] += len(data) >= left
        return data[:left], max(0, left - len(data))

    def flip(data, left):
        left = draw.randrange(2 * int(amount)) if left is None else left
        totals["bytes"] += len(data)
        changed = bytearray(data)
        while left < len(changed):
            changed[left] ^= 1 << draw.randrange(8)
            totals["flips"] += 1
            left += 1 + draw.randrange(2 * int(amount))
        return bytes(changed), left - len(changed) + 1

    return {"delay": delay, "cut": cut, "flip": flip}[kind]


def main():
    host, port, listen, fault = sys.argv[1:]
    listener = socket.create_server((host, int(listen)))

    def serve():
        while True:
            near, _ = listener.accept()
            totals["connections"] += 1
            far = socket.create_connection((host, int(port)))
            threading.Thread(target=pump, args=(near, far, keep), daemon=True).start()
            threading.Thread(target=pump, args=(far, near, fault_of(fault)), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.readline()
    print(totals)


main()
