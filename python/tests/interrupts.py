"""Interrupts a call at each of its points, as a signal's handler that raises would, but without signals.

Python runs a signal's handler after a call of C returns, when a function begins, and at the next iteration of a loop. A profile function is called at the
first two of these points. So it replaces the handler: for every k it raises at the k-th point in lcache's own code.
"""

import itertools
import os
import sys

import lcache

HERE = os.path.dirname(lcache.__file__)


def at_point(k, handler, act):
    """Calls act(), and handler() at its k-th point within lcache. Returns whether act() had that many points."""
    left = k

    def profile(frame, event, _):
        nonlocal left
        if event in ("c_return", "call") and frame.f_code.co_filename.startswith(HERE):
            left -= 1
            if left < 0:
                sys.setprofile(None)
                handler()

    sys.setprofile(profile)
    try:
        act()
    finally:
        sys.setprofile(None)
    return left < 0


def interrupt():
    raise KeyboardInterrupt


def interrupted_everywhere(act, after, step=1):
    """Interrupts act() at each of its points. Calls after() after each interrupt, while its traceback is kept, as in a notebook. Returns the number of points."""
    for k in itertools.count(step=step):
        try:
            if not at_point(k, interrupt, act):
                return k
        except KeyboardInterrupt as e:
            kept = e
            after()
            del kept
