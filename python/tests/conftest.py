import gc
import os
import shutil
import tempfile

import fakeserver
import pytest

import lcache

os.environ["LCACHE_FACTS"] = "off"  # the speed of this machine's disk must not decide anything
os.environ["LCACHE_TMPFS"] = "1"  # temporary folders may be in memory, and a cache in one is fine for tests


def pytest_collection_finish():
    gc.freeze()  # imported modules such as torch stay: the collector would scan them each time


@pytest.fixture(scope="session")
def source_dir():
    """source_dir() makes a folder for the files of a source, removed at the end. It is in memory if there is room, because ext4 creates files slowly after many were deleted."""
    made, memory = [], "/dev/shm"

    def make():
        room = os.path.isdir(memory) and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= 2 << 30
        made.append(tempfile.mkdtemp(prefix="lcache-test-", dir=memory if room else None))
        return made[-1]

    yield make
    for folder in made:
        shutil.rmtree(folder)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "s.sock")


@pytest.fixture
def serve(path):
    """serve(cls=Server, **info): starts a fake server at path; all are stopped at the end."""
    started = []

    def start(cls=fakeserver.Server, **info):
        started.append(cls(path, **info))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def job(serve, path):
    """A job of a fake server without faults, job.server. At the end all leases must be released."""
    server = serve()
    job = lcache.connect(path, timeout=10)
    job.server = server
    yield job
    job.close()
    assert server.wait_for(lambda: not server.leases), f"leases never released: {server.leases}"


def check(batch, indices):
    """Asserts that a batch has exactly these samples, with the right bytes."""
    assert list(batch.indices) == list(indices)
    assert list(batch.labels) == [i % 2 for i in indices]
    assert [bytes(view) for view in batch.samples] == [fakeserver.content(i) for i in indices]
