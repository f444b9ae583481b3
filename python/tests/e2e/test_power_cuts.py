"""Power cuts: a cache on its own ext4, which is shut down in the middle of its work (EXT4_IOC_SHUTDOWN). As in a power cut, data that the file system
has not written to its device are lost: completed direct writes to reserved space are zeros afterwards, and names are missing. Needs root, for the mount.

LCACHE_POWER_CUTS is the number of cuts in each test (default: 3), LCACHE_SEED the seed.
"""

import collections
import fcntl
import os
import shutil
import struct
import subprocess
import time

import pytest
import realserver
from processes import Cache, read_in_processes
from waits import DEADLINE, until

CUTS = int(os.environ.get("LCACHE_POWER_CUTS", "3"))

SHUTDOWN = 0x8004587D
FLUSH_LOG, KEEP_LOG = 1, 2  # whether the file system's own log is written first


class Drive:
    """An ext4 in a file, mounted below the folder."""

    def __init__(self, folder, size):
        self.image, self.root = os.path.join(folder, "image"), os.path.join(folder, "drive")
        with open(self.image, "wb") as f:
            f.truncate(size)
        command("mkfs.ext4", "-q", "-E", "root_owner=0:0", self.image)
        os.mkdir(self.root)
        self.caches = []
        self.mount()

    def cache(self, folder, **job):
        """A cache on the drive, not yet ingested."""
        self.caches.append(Cache(folder, os.path.join(self.root, "cache"), budget=folder.bytes + (12 << 20), **job))
        return self.caches[-1]

    def mount(self):
        command("mount", "-o", "loop,errors=remount-ro", self.image, self.root)

    def unmount(self):
        until(lambda: subprocess.run(["umount", self.root], capture_output=True).returncode == 0, f"the end of all use of {self.root}")

    def cut(self, how):
        fd = os.open(self.root, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, SHUTDOWN, struct.pack("I", how))
        finally:
            os.close(fd)

    def restart(self):
        self.unmount()
        self.mount()


def command(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"{' '.join(words)}: {done.stderr.strip()}")


@pytest.fixture
def drive(disk):
    if os.getuid() != 0:
        pytest.skip("needs root, to mount a file system that can be cut off")
    if not shutil.which("mkfs.ext4"):
        pytest.skip("needs mkfs.ext4")
    made = Drive(disk, 1600 << 20)  # sparse: a cache leaves 1 GB free
    yield made
    for cache in made.caches:
        cache.kill()
    made.unmount()


def test_cuts_of_ingest(drive, small, draw):
    """After cuts at random points, the next ingest continues. Once it has reported success, all samples survive the next cut."""
    cache = drive.cache(small, epochs=1, batch_size=8)
    full = sum(len(c) > 0 for c in small.contents)
    began = time.monotonic()
    cache.ingest()
    whole = time.monotonic() - began
    cuts = resumed = 0
    while cuts < CUTS:
        shutil.rmtree(cache.cache)
        os.sync()
        for _ in range(draw.randrange(1, 3)):
            cut_an_ingest(cache, drive, draw.uniform(0, 1.2) * whole, draw.choice((FLUSH_LOG, KEEP_LOG)))
            cuts += 1
        report = cache.ingest()
        assert report["already"] + report["read_samples"] == full
        assert report["stored_samples"] == full, f"after {cuts} cuts"
        resumed += report["already"] > 0
        drive.cut(KEEP_LOG)
        drive.restart()
        cuts += 1
        assert cache.used() <= cache.budget
        cache.start()
        cache.read_all()
        job = cache.job()
        cache.stop()
        assert (job["misses"], job["source_bytes"], job["corrupt_samples"], job["stale_samples"]) == (0, 0, 0, 0), f"after {cuts} cuts"
    print(f"{cuts} cuts; {resumed} times something was left of an ingest that was cut off")
    report = cache.verify()
    assert (report["good"], report["corrupt"], report["different"]) == (len(small), 0, 0)


def cut_an_ingest(cache, drive, seconds, how):
    """Starts an ingest, shuts its file system down after some time, ends the ingest, and mounts the file system again."""
    job = {"recipe": "torch.distributed_sampler", "seed": cache.seed, "epochs": cache.epochs, "batch-size": cache.batch_size}
    flags = {"source": cache.folder.root, "cache": cache.cache, "budget": cache.budget, "jobs": 2, **job}
    process = subprocess.Popen([realserver.BINARY, "ingest", "--quiet"] + [f"--{k}={v}" for k, v in flags.items()], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        pass
    drive.cut(how)
    process.kill()
    process.communicate(timeout=DEADLINE)
    drive.restart()


def test_cuts_of_the_server(drive, reader, small, draw):
    """After a cut in the middle of reordering, clients get the remaining samples from the source. The restarted server serves the valid samples, in
    the same order, and puts the lost ones back into the log."""
    cache = drive.cache(small, world=2, epochs=10_000, batch_size=8)
    cache.ingest()
    cache.start()
    readers = [reader(cache), reader(cache)]
    assert all([r.ask("ready") for r in readers])
    size = len(cache.batches(0, 0))
    seen = collections.Counter()
    for n in range(CUTS):
        for rank, r in enumerate(readers):
            r.send("epochs", first=2 * n, last=2 * n + 2, rank=rank, report=1)
        for _ in range(draw.randrange(1, 2 * size)):
            at = readers[n % 2].line()["at"]
        drive.cut(draw.choice((FLUSH_LOG, KEEP_LOG)))
        for _ in range(draw.randrange(0, 4)):  # without a disk, and still right
            if at == [2 * n + 1, size]:
                break
            at = readers[n % 2].line()["at"]
        cache.kill()
        drive.restart()
        cache.start()
        assert [r.answer() for r in readers] == [2 * size, 2 * size], f"cut {n} at {at}"
        job = cache.job()
        seen.update({k: job[k] for k in ("hits", "misses", "stale_samples", "corrupt_samples")})
        assert job["divergences"] == 0
    print(f"{CUTS} cuts: {dict(seen)}")
    assert seen["corrupt_samples"] == 0
    read = [cache.job()["source_bytes"]]
    for epoch in range(2 * CUTS, 2 * CUTS + 60):  # such short epochs end before the log has caught up
        read_in_processes(readers, epoch, epoch + 1)
        read.append(cache.job()["source_bytes"])
        if read[-1] == read[-2]:
            break
    else:
        pytest.fail(f"lost samples were not put back into the log: bytes read from the source after each epoch {read}")
    for r in readers:
        r.close()
    cache.stop()
    report = cache.verify()
    assert (report["corrupt"], report["different"]) == (0, 0)


def test_cuts_of_recovery(drive, small, draw):
    """A server whose disk is cut off while it starts, and which is killed then or a moment earlier, leaves a cache that the next one can use."""
    cache = drive.cache(small, epochs=10_000, batch_size=8)
    cache.ingest()
    cache.start()
    with cache.connect() as job:
        cache.read(job, 0, 0, stop=40)
    began = time.monotonic()
    cache.kill()
    cache.start()
    whole = time.monotonic() - began
    for n in range(CUTS):
        cache.kill()
        for _ in range(3):
            command_line = [realserver.BINARY, "serve", "--cache", cache.cache, "--quiet"]
            process = subprocess.Popen(command_line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "XDG_RUNTIME_DIR": cache.cache})
            time.sleep(draw.uniform(0, whole))  # so that the cut comes at a random moment of the start
            if draw.random() < 0.5:
                drive.cut(KEEP_LOG)
            process.kill()
            process.wait(timeout=DEADLINE)
            drive.restart()
        cache.start()
        with cache.connect() as job:
            cache.read(job, 0, 0, start=n % 20, stop=n % 20 + 10)
        assert cache.job()["corrupt_samples"] == 0
    cache.read_all(epochs=range(2))
    cache.stop()
    report = cache.verify()
    assert (report["corrupt"], report["different"]) == (0, 0)
