"""A second implementation of the homes of samples in a cluster, written from docs/cluster.md. It agrees with internal/cluster/homes on the golden vectors.

Run as a program, this file writes the vectors.
"""
import json
import os
import struct
from functools import cmp_to_key
from itertools import groupby
from pathlib import Path

import pytest
import xxhash

VECTORS = Path(__file__).parents[2] / "internal/cluster/homes/testdata/vectors.json"
BINS = 65536


def minus_log2(x):
    """-log2(x / 2**64) with 32 bits after the point, rounded up."""
    whole = max(x, 1).bit_length() - 1
    m, log = max(x, 1) << (63 - whole), whole
    for _ in range(32):
        m, log = m * m >> 63, log << 1
        if m >> 64:
            m, log = m >> 1, log | 1
    return (64 << 32) - log


def scores(peers, bin):
    return [minus_log2(xxhash.xxh3_64_intdigest(struct.pack("<H", bin) + bytes.fromhex(p["id"]))) for p in peers]


def order(peers, bin):
    """The peers in the order of their scores divided by their weights."""
    score = scores(peers, bin)

    def compare(p, q):
        a, b = score[p] * peers[q]["weight"], score[q] * peers[p]["weight"]
        return -1 if (a, peers[p]["id"]) < (b, peers[q]["id"]) else 1
    return sorted(range(len(peers)), key=cmp_to_key(compare))


def ranked(peers, loads):
    """The peers of each bin, its home first."""
    total, weights = sum(loads), sum(p["weight"] for p in peers)
    fair = [total * p["weight"] // weights for p in peers]
    limits = [f + f // 100 for f in fair]
    kept = [0] * len(peers)
    result = []
    for bin in range(BINS):
        by_score = order(peers, bin)
        home = next((p for p in by_score if kept[p] < limits[p]), by_score[0])
        kept[home] += loads[bin]
        result.append([home] + [p for p in by_score if p != home])
    return result


def threshold(places, room):
    """The largest threshold whose samples fit, of pairs of a place and a size; None: all fit."""
    total = 0
    for place, group in groupby(sorted(places), key=lambda pair: pair[0]):
        total += sum(size for _, size in group)
        if total > room:
            return place
    return None


def make_loads(kind):
    return [xxhash.xxh3_64_intdigest(struct.pack("<I", b)) & 0xfffff if kind == "uneven" else 0 for b in range(BINS)]


def sample(i):
    name = xxhash.xxh3_64_intdigest(b"sample-%06d" % i)
    return name, 4096 * (1 + (name >> 32) % 48)


def digest(numbers):
    return "%016x" % xxhash.xxh3_64_intdigest(struct.pack("<%dH" % len(numbers), *numbers))


def solve(case):
    """What the vectors say of a case, from its peers, loads, samples and rooms."""
    peers, n = case["peers"], len(case["peers"])
    all_ranked = ranked(peers, make_loads(case["loads"]))
    ranks = [[bin_ranked.index(p) for bin_ranked in all_ranked] for p in range(n)]
    thresholds = []
    for t in case["thresholds"]:
        of = ranks[t["peer"]]
        places = [((of[name & 0xffff] << 48) + (name >> 16), size) for name, size in map(sample, range(case["samples"]))]
        least = threshold(places, t["room"])
        least = n << 48 if least is None else least
        thresholds.append({**t, "threshold": "%016x" % least})
    return {**case, "first": [r[0] for r in all_ranked[:32]], "homes": digest([r[0] for r in all_ranked]),
            "ranks": [digest(r) for r in ranks], "thresholds": thresholds}


def questions():
    """The cases without their answers."""
    def peers(*weights):
        return [{"id": "%032x" % xxhash.xxh3_128_intdigest(b"peer-%d" % i), "weight": w} for i, w in enumerate(weights)]

    def rooms(*pairs):
        return [{"peer": p, "room": room} for p, room in pairs]
    mb = 1 << 20
    return [
        {"peers": peers(7), "loads": "uneven", "samples": 2000, "thresholds": rooms((0, 0), (0, 50 * mb), (0, 1000 * mb))},
        {"peers": peers(1, 1, 1), "loads": "uneven", "samples": 3000, "thresholds": rooms((0, 30 * mb), (1, 100 * mb), (2, 250 * mb), (2, 1000 * mb))},
        {"peers": peers(1 << 40, 1 << 41, 3 << 39), "loads": "none", "samples": 500, "thresholds": rooms((1, 10 * mb))},
        {"peers": peers(1, 1, 1, 1, 2, 2, 4, 4), "loads": "uneven", "samples": 1000, "thresholds": rooms((7, 30 * mb), (0, 70 * mb))},
    ]


def read():
    return json.loads(Path(os.environ.get("HOMES_VECTORS", VECTORS)).read_text())


@pytest.mark.parametrize("case", read()["cases"], ids=lambda case: "%d peers, %s" % (len(case["peers"]), case["loads"]))
def test_homes_agree_with_the_vectors(case):
    assert solve(case) == case


def test_logarithms_agree_with_the_vectors():
    for x, want in read()["minus_log2"]:
        assert "%x" % minus_log2(int(x, 16)) == want


def test_shards_agree_with_the_vectors():
    for shard, position, want in read()["shards"]:
        assert xxhash.xxh3_64_intdigest(shard.encode() + b"\0" + struct.pack("<Q", position >> 22)) & 0xffff == want


if __name__ == "__main__":
    numbers = [0, 1, 2, 3, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1] + [xxhash.xxh3_64_intdigest(b"%d" % i) >> i for i in range(40)]
    shards = [("train/0001.tar", p) for p in (0, 1, (4 << 20) - 1, 4 << 20, 1 << 40)] + [("b.tar", 0)]
    with VECTORS.open("w") as out:
        lines = ["  " + json.dumps(solve(case)) for case in questions()]
        logs = json.dumps([("%x" % x, "%x" % minus_log2(x)) for x in numbers])
        pieces = json.dumps([(s, p, xxhash.xxh3_64_intdigest(s.encode() + b"\0" + struct.pack("<Q", p >> 22)) & 0xffff) for s, p in shards])
        out.write('{"minus_log2": %s,\n "shards": %s,\n "cases": [\n%s\n ]}\n' % (logs, pieces, ",\n".join(lines)))
