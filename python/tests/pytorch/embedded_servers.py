"""Helpers for servers that lcache.open started, and fixtures to import."""

import os
import signal

import pytest
import realserver
from waits import wait_for_end

import lcache


def servers(root):
    """The pids of servers whose caches are below root."""
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


def entry_of(loader):
    """A loader's job in the server's status document, with the figures that all jobs share, which are in the first entry."""
    job = loader.batch_sampler.order_ahead.jobs[0]
    first, *_ = entries = job.stats()["jobs"]
    (own,) = [entry for entry in entries if entry["id"] == job.token]
    return {**own, **{name: first[name] for name in ("source_reads", "source_bytes", "log_read_bytes", "random_reads", "sort_bytes", "kept_bytes")}}


@pytest.fixture
def pushed(monkeypatch):
    """The orders that this process pushes, as (epoch, rank)."""
    seen, push = [], lcache.job.Job.push_order
    monkeypatch.setattr(lcache.job.Job, "push_order", lambda job, epoch, rank, order: (seen.append((epoch, rank)), push(job, epoch, rank, order)))
    return seen


@pytest.fixture
def patient(monkeypatch):
    """Makes loaders wait for the predictions of a forked process, however busy the machine is."""
    monkeypatch.setattr("lcache.torch._order.foreseen_orders.PATIENCE", 60.0)
    monkeypatch.setattr("lcache.torch._order.forked_child.SECONDS", 60.0)


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
        wait_for_end(pid)


@pytest.fixture(scope="session")
def folder(source_dir):
    """240 samples in 5 classes."""
    return realserver.Folder(os.path.join(source_dir(), "train"), [300 + 37 * i % 5000 for i in range(240)], classes=5)
