"""Waits of tests. Each has a deadline, and an error that names the awaited event."""

import time

DEADLINE = 30.0  # seconds


def until(condition, what, seconds=DEADLINE, pause=0.02):
    """Calls condition() again and again, pause seconds apart, until it returns something true, and returns that."""
    end = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, f"waited {seconds:g} s for {what}"
        time.sleep(pause)  # other processes send no event, so this has to poll


def has_ended(pid):
    """Whether a process and all its threads have ended. Its entry in /proc goes when init collects it, which takes seconds on some machines."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return fields[0] in "ZX" and int(fields[17]) <= 1  # the state, and the number of threads


def wait_for_end(pid):
    """Waits for the end of a process that need not be a child of this one."""
    until(lambda: has_ended(pid), f"the end of process {pid}")
