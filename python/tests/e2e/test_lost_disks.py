"""A running server loses its cache directory: removed, remounted read-only, unmounted, cut off. Reads continue, if necessary from the
source. Nothing is created again on another file system, and the server ends when it is stopped."""

import os
import shutil
import signal
import subprocess

import pytest
from test_power_cuts import KEEP_LOG, command, drive  # noqa: F401: the fixture
from waits import DEADLINE


def finish(process):
    """Sends SIGTERM, and waits for the end. The exit code may report that something could not be saved."""
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode in (0, 1), errors
    assert "panic" not in errors and "goroutine" not in errors, errors


def removed(drive, cache):  # noqa: F811
    for _ in range(100):  # the server may create a journal in it meanwhile
        shutil.rmtree(cache.cache, ignore_errors=True)
        if not os.path.exists(cache.cache):
            return
    pytest.fail("the server makes files in its directory as fast as they are removed")


def read_only(drive, cache):  # noqa: F811
    # ext4 can't be remounted read-only while files are open for writing. An error of the file system does it anyway.
    device = os.path.basename(subprocess.run(["findmnt", "-no", "SOURCE", drive.root], capture_output=True, text=True, check=True).stdout.strip())
    with open(f"/sys/fs/ext4/{device}/trigger_fs_error", "w") as f:
        f.write("injected by a test\n")
    with pytest.raises(OSError):
        open(os.path.join(drive.root, "file"), "w").close()


def unmounted(drive, cache):  # noqa: F811
    command("umount", "-l", drive.root)


def cut_off(drive, cache):  # noqa: F811
    drive.cut(KEEP_LOG)


@pytest.mark.parametrize("trouble", [removed, read_only, unmounted, cut_off])
def test_reads_go_on(drive, small, trouble):  # noqa: F811
    """One rank is in the middle of an epoch. That epoch and the next two are exact to the byte."""
    cache = drive.cache(small, epochs=10, batch_size=8)
    cache.ingest()
    cache.start()
    process, cache.process = cache.process, None
    try:
        with cache.connect() as job:
            cache.read(job, 0, 0)
            coming = job.epoch(1)
            expected = cache.batches(1, 0)
            for number, batch in enumerate(coming):
                cache.check(batch, expected[number])
                if number == 10:
                    trouble(drive, cache)
            assert number + 1 == len(expected)
            cache.read(job, 2, 0)
            cache.read(job, 3, 0)
            stats = job.stats()["jobs"][0]
            assert stats["corrupt_samples"] == 0
            assert stats["hits"] + stats["misses"] == 4 * len(small)
        finish(process)
    finally:
        process.kill()
        process.wait(timeout=DEADLINE)
    if trouble is removed:
        assert not os.path.exists(cache.cache), "the cache's directory was created again"
    if trouble is unmounted:
        assert os.listdir(drive.root) == [], "something was written below the mount point"
        drive.mount()
        return
    drive.restart()
    if trouble is not removed:
        cache.start()
        cache.read_all(epochs=range(2))
        cache.stop()
        assert cache.verify()["different"] == 0
