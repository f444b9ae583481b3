import os
import random
import shutil
import subprocess
import tempfile

import pytest
import realserver
from processes import Cache, Reader

BLOCK = 256 << 10

# SEED is the same in all workers of pytest-xdist, which inherit the environment: it is the one that the header says. Programs under test must not find it as LCACHE_SEED, which they take for --seed.
SEED = int(os.environ.pop("LCACHE_SEED", None) or os.environ.get("SEED_OF_TESTS") or random.randrange(1 << 31))
os.environ["SEED_OF_TESTS"] = str(SEED)


def pytest_report_header():
    return f"LCACHE_SEED={SEED}"


@pytest.fixture
def draw(request):
    """Random numbers of this test; the run's seed is said when it fails."""
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
    """A folder on a real disk, which /tmp often is not; gone after its test, so that many runs don't fill the disk."""
    folder = tempfile.mkdtemp(prefix="lcache-test-", dir=os.environ.get("LCACHE_TEST_DIR", "/var/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def trees(source_dir):
    """The folder of the sources that tests share."""
    return source_dir()


@pytest.fixture(scope="session")
def tree(trees):
    """30 MB with everything that is awkward: nothing, one byte, a block and its neighbours, three blocks; names that are no words."""
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
    """10 MB, for what is not about throughput."""
    r = random.Random(8)
    return realserver.Folder(os.path.join(trees, "small"), [0, 1, 3 * BLOCK] + [r.randrange(30_000) for _ in range(600)])


@pytest.fixture
def prepare(disk):
    """prepare(folder, …): an ingested cache, its report in .report; whatever serves it in the end is stopped, cleanly."""
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
    """serve(folder, …): ingested and served."""
    return lambda folder, **job: prepare(folder, **job).start()


@pytest.fixture
def reader():
    """reader(cache): a process that reads from it."""
    started = []

    def start(cache):
        started.append(Reader(cache))
        return started[-1]

    yield start
    for r in started:
        if r.process.poll() is None:
            r.kill()
