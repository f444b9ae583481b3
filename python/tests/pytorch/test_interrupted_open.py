"""Interrupts while lcache.open lists a source and starts a server: the next lcache.open works."""

from embedded_servers import folder, root  # noqa: F401
from interrupts import interrupted_everywhere

import lcache

STEP = 25  # points between two that are tried, as each takes a listing and a server


def test_interrupted_open(folder, root, monkeypatch):
    monkeypatch.setenv("LCACHE_LINGER", "0")
    opened = 0

    def read():
        with lcache.open(folder.root, f"{root}/{opened}", timeout=20) as job:
            assert [bytes(view) for view in job.get([3, 200]).samples] == [folder.contents[3], folder.contents[200]]

    def after():
        nonlocal opened
        read()
        opened += 1

    assert interrupted_everywhere(read, after, STEP) > 100
