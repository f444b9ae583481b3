"""Finding and awaiting the servers that lcache.open started."""

import os
import time


def gone(pid, seconds=30):
    """Waits for a process to end; False if it does not."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
            with open(f"/proc/{pid}/stat") as f:
                if f.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.02)
    return False


def servers(root):
    """The pids of servers whose caches lie under root."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
        except OSError:
            continue
        if b"serve" in words and any(word.startswith(os.fsencode(root) + b"/") for word in words):
            found.append(int(pid))
    return found
