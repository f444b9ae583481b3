"""What the page costs the server: with one viewer at most 1 % of a core, and no memory that grows over 60 s of an epoch."""

import os
import statistics
import threading
import time
import urllib.request

import pytest
import realserver
from test_monitor import Run

pytestmark = [
    realserver.needs_binary,
    pytest.mark.skipif(not os.environ.get("LCACHE_IDLE"), reason="CPU time depends on what else runs: make test-faults PARTS=times, on a machine that does nothing else"),
]

SECONDS = 60  # with a viewer; and as long without one, half of it before
MOST = 0.01  # cores
GROWTH = 1 << 20  # bytes: the heap breathes with the collector


class Viewer:
    """An open page: it reads the stream of documents."""

    def __init__(self, page):
        self.documents = 0
        self._stream = urllib.request.urlopen(page.rstrip("/") + "/stream", timeout=30)
        self._ended = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        while not self._ended:
            if self._stream.readline().startswith(b"data:"):
                self.documents += 1

    def close(self):
        self._ended = True
        self._thread.join(10)
        self._stream.close()


def cpu(pid):
    """The CPU seconds of a process."""
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def private(pid):
    """The bytes that a process alone has in memory, without files and shared memory."""
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("RssAnon:"))


def watch(pid, seconds):
    """(CPU seconds, the private memory at each half second), over some time."""
    began, before, memory = time.monotonic(), cpu(pid), []
    while time.monotonic() - began < seconds:
        time.sleep(0.5)  # the measured time
        memory.append(private(pid))
    return cpu(pid) - before, memory


def test_cost(tmp_path):
    run = Run(str(tmp_path), "--page")
    pid = run.process.pid
    try:
        watch(pid, 10)  # the first epochs fill the cache
        before, _ = watch(pid, SECONDS / 2)
        viewer = Viewer(run.page)
        with_viewer, memory = watch(pid, SECONDS)
        viewer.close()
        after, _ = watch(pid, SECONDS / 2)
    finally:
        run.end()
    assert viewer.documents >= SECONDS / 2, "the viewer got no documents"
    cost = (with_viewer - before - after) / SECONDS
    third = len(memory) // 3
    first, last = statistics.median(memory[:third]), statistics.median(memory[-third:])
    print(f"\none viewer costs {100 * cost:.2f} % of a core, beside {100 * (before + after) / SECONDS:.1f} %; private memory {first / 1e6:.2f} MB, then {last / 1e6:.2f} MB")
    assert cost <= MOST and last - first <= GROWTH
