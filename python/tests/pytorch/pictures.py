"""Makes a folder of small pictures with the standard library alone."""

import os
import random
import struct
import zlib


def png(pixels, width, height):
    """An RGB picture as PNG."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + pixels[3 * width * y : 3 * width * (y + 1)] for y in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def make(root, count=50, classes=("ant", "bee", "cat"), side=8, seed=0):
    """Makes `count` pictures in class folders, some in deeper folders, some with names in capitals, and files that are not pictures. Each class has a colour."""
    draw = random.Random(seed)
    for i in range(count):
        label = i % len(classes)
        deeper = "more/" if i % 5 == 0 else ""
        path = os.path.join(root, classes[label], deeper, f"{draw.randrange(10**6):06d}-{i}.{'PNG' if i % 7 == 0 else 'png'}")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        pixels = bytes(min(255, draw.randrange(100) + (120 if c == label else 0)) for _ in range(side * side) for c in range(3))
        with open(path, "wb") as f:
            f.write(png(pixels, side, side))
    with open(os.path.join(root, classes[0], "notes.txt"), "w") as f:
        f.write("not a picture")
    return root
