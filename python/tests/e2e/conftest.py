import os
import random
import shutil
import subprocess
import tempfile

import pytest
import realserver
from processes import Cache, Reader

BLOCK = 256 << 10

# SEED is the one in the header, also in the workers of pytest-xdist, which inherit the environment. Programs under test must not see LCACHE_SEED: it would be their --seed.
SEED = int(os.environ.pop("LCACHE_SEED", None) or os.environ.get("SEED_OF_TESTS") or random.randrange(1 << 31))
os.environ["SEED_OF_TESTS"] = str(SEED)


def pytest_report_header():
    return f"LCACHE_SEED={SEED}"


@pytest.fixture
def draw(request):
    """Random numbers of this test. The run's seed is printed if it fails."""
    print(f"LCACHE_SEED={SEED}")
    return random.Random(f"{SEED} {request.node.name}")


@pytest.fixture(scope="session", autouse=True)
def binary():
    """The binary under test: $LCACHE_BIN, else one built from this tree."""
    if os.environ.get("LCACHE_BIN"):
        yield realserver.BINARY
        return
    before = realserver.BINARY
    with tempfile.TemporaryDirectory() as folder:
        realserver.BINARY = os.path.join(folder, "lcache")
        subprocess.run(["go", "build", "-o", realserver.BINARY, "./cmd/lcache"], cwd=realserver.ROOT, check=True, timeout=600)
        yield realserver.BINARY
    realserver.BINARY = before


@pytest.fixture
def disk():
    """A folder on a real disk, which /tmp often is not. It is removed after the test, so that many runs don't fill the disk."""
    folder = tempfile.mkdtemp(prefix="lcache-test-", dir=os.environ.get("LCACHE_TEST_DIR", "/var/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def trees(source_dir):
    """The folder of the sources that tests share."""
    return source_dir()


@pytest.fixture(scope="session")
def tree(trees):
    """30 MB of difficult files: empty, one byte, a block and one byte less or more, three blocks; and unusual names."""
    root = os.path.join(trees, "tree")
    for name in ("class1/with space", "class1/ümläut", "class2/new\nline", "class5/-dash", "class0/.hidden"):
        path = os.path.join(root, name + ".bin")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(name * 50)
    sizes = [0, 0, 1, 63, 64, 65, 4095, 4096, 4097, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 5, 3 * BLOCK]
    r = random.Random(7)
    sizes += [min(int(r.lognormvariate(9.7, 0.9)), 3 * BLOCK) for _ in range(1137)]
    return realserver.Folder(root, sizes)


@pytest.fixture(scope="session")
def small(trees):
    """10 MB, for tests that are not about throughput."""
    r = random.Random(8)
    return realserver.Folder(os.path.join(trees, "small"), [0, 1, 3 * BLOCK] + [r.randrange(30_000) for _ in range(600)])


@pytest.fixture
def prepare(disk):
    """prepare(folder, …) ingests a cache, with its report in .report. At the end its server is stopped, and must exit cleanly."""
    made = []

    def make(folder, **job):
        cache = Cache(folder, os.path.join(disk, f"cache{len(made)}"), **job)
        made.append(cache)
        cache.report = cache.ingest()
        return cache

    yield make
    for cache in made:
        cache.stop()


@pytest.fixture
def serve(prepare):
    """serve(folder, …) ingests a cache and starts its server."""
    return lambda folder, **job: prepare(folder, **job).start()


@pytest.fixture
def reader():
    """reader(cache) starts a process that reads from the cache."""
    started = []

    def start(cache):
        started.append(Reader(cache))
        return started[-1]

    yield start
    for r in started:
        if r.process.poll() is None:
            r.kill()
