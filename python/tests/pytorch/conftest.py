import os
import signal

import pytest
import realserver
from embedded_servers import gone, servers


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A cache root whose servers end with the test."""
    if not os.access(realserver.BINARY, os.X_OK):
        pytest.skip(f"no {realserver.BINARY}: make build, or set LCACHE_BIN")
    path = tmp_path / "root"
    monkeypatch.setenv("LCACHE_BIN", realserver.BINARY)
    monkeypatch.setenv("LCACHE_LINGER", "20")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for name in ("LCACHE_SOCKET", "LCACHE_CACHE", "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    package = os.path.join(realserver.ROOT, "python")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([package, os.path.join(package, "tests"), os.path.dirname(__file__)]))
    yield str(path)
    for pid in servers(path):
        os.kill(pid, signal.SIGTERM)
        assert gone(pid), f"server {pid} did not end"


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """240 samples in 5 classes."""
    return realserver.Folder(tmp_path_factory.mktemp("files") / "train", [300 + 37 * i % 5000 for i in range(240)], classes=5)
