"""Compares `lcache order` with the order of a framework, case by case.

The cases of a test are some fixed ones at the edges, then random ones from a seed that is printed (LIVE_SEED sets it), until
the test's share of the time is used up. LIVE_SECONDS, 12 unless set, is about the time for all random cases together.
"""

import array
import os
import random
import secrets
import shutil
import subprocess
import tempfile
import time

SEED = int(os.environ.get("LIVE_SEED") or secrets.randbits(32))
SECONDS = float(os.environ.get("LIVE_SECONDS") or 12)

BEGUN = time.monotonic()
SHARES = 32  # the number of shares of all tests together

# Seeds at which generators change their behaviour.
SEEDS = [0, 1, 42, 2**31, 2**32 - 1, 2**32, 2**32 + 42, 2**63 - 1, 2**63, 2**64 - 1, -1, -(2**63)]
# Sizes at which they do so: empty, single, around a state of 624 words, primes.
SIZES = [1, 2, 3, 5, 22, 623, 624, 625, 626, 1009, 4099]


def binary():
    path = os.environ.get("LCACHE_BIN") or shutil.which("lcache")
    if not path:
        raise RuntimeError("LCACHE_BIN is not set, and lcache is not on PATH: build it, and set LCACHE_BIN to it")
    return path


# One line for each test that ran, for the report.
DONE = []


class Refused(Exception):
    """lcache order called the parameters wrong."""


def order(recipe, n=None, seed=None, epoch=0, rank=None, world=None, batch_size=None, drop_last=False, **params):
    """The indices of lcache's order, as a list."""
    cmd = [binary(), "order", "--recipe", recipe, "--epoch", str(epoch), "--format", "u32le"]
    for flag, value in (("--samples", n), ("--seed", seed), ("--rank", rank), ("--world-size", world), ("--batch-size", batch_size)):
        if value is not None:
            cmd += [flag, str(value)]
    if drop_last:
        cmd.append("--drop-last")
    for name, value in params.items():
        if value is None:
            continue
        if isinstance(value, (bool, list, tuple)):
            value = str(list(value) if isinstance(value, tuple) else value).lower()
        cmd += ["--param", f"{name}={value}"]
    done = subprocess.run(cmd, capture_output=True, timeout=60)
    if done.returncode == 2:
        raise Refused(done.stderr.decode())
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(cmd)}: exit {done.returncode}: {done.stderr.decode()}")
    out = array.array("I")
    out.frombytes(done.stdout)
    return out.tolist()


class Check:
    """The cases of one test, as a context manager. Its end fails the test if anything differed."""

    def __init__(self, name, share=1.0):
        self.name = name
        self.rng = random.Random(f"{SEED}/{name}")
        self.cases = 0
        self.wrong = []
        self.begun = time.monotonic()
        self.deadline = self.begun + share * SECONDS / SHARES
        self.files = tempfile.TemporaryDirectory(prefix="lcache-live-")

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.files.cleanup()
        if kind is not None:
            return
        DONE.append(f"{self.name}: {self.cases} cases in {time.monotonic() - self.begun:.1f} s, {len(self.wrong)} differ")
        assert self.cases > 0, f"{self.name}: nothing was compared"
        assert not self.wrong, f"{self.name}: {len(self.wrong)} of {self.cases} cases differ (LIVE_SEED={SEED}):\n" + "\n".join(self.wrong[:5])

    def random_cases(self, most=1000):
        """Counts up to most, as long as there is time for this test, and within a minute for all tests."""
        for i in range(most):
            if time.monotonic() > min(self.deadline, BEGUN + 40):
                return
            yield i

    def seed(self):
        """A seed that torch accepts."""
        return self.rng.choice([self.rng.choice(SEEDS), self.rng.randrange(-(2**63), 2**64), self.rng.randrange(2**32)])

    def size(self, most=5000):
        return self.rng.choice([self.rng.choice(SIZES), self.rng.randrange(1, 40), self.rng.randrange(1, most)])

    def file(self, data):
        """Writes data to a new file, and returns its name."""
        path = os.path.join(self.files.name, str(len(os.listdir(self.files.name))))
        with open(path, "wb") as f:
            f.write(data)
        return path

    def same(self, want, recipe, **what):
        """Compares a framework's order with lcache's."""
        self.cases += 1
        try:
            got = order(recipe, **what)
        except Refused as e:
            got = str(e)
        want = want.tolist() if hasattr(want, "tolist") else [int(x) for x in want]
        if got != want:
            self.wrong.append(f"{recipe} {what}\n  want {str(want)[:200]}\n  got  {str(got)[:200]}")

    def both(self, make, recipe, **what):
        """Like same, but if the framework raises, lcache must refuse."""
        try:
            want = list(make())
        except (ValueError, RuntimeError, OverflowError, AssertionError, ZeroDivisionError, TypeError) as e:
            self.refused(e, recipe, **what)
        else:
            self.same(want, recipe, **what)

    def refused(self, why, recipe, **what):
        self.cases += 1
        try:
            got = order(recipe, **what)
        except Refused:
            return
        self.wrong.append(f"{recipe} {what}\n  want a refusal: {why}\n  got  {str(got)[:200]}")
