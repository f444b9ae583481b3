"""Compares `lcache plan` with `lcache bench` on volumes that are limited to 1,500 operations and 100 MiB, and to 3,000 and 500 MiB a second, each way. Root makes them from a loop device and a cgroup.

It measures times, so it runs only on request, on an idle machine: LCACHE_CAPPED=FOLDER pytest -s test_plan_holds.py, where FOLDER has 8 GB of free space. A folder in memory (tmpfs) adds no limit of its own. A disk must be faster than both limits together.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest
import realserver
from waits import until

FOLDER = os.environ.get("LCACHE_CAPPED", "")
VOLUMES = [(1500, 100 << 20), (3000, 500 << 20)]  # operations and bytes a second
SETS = {"4KB": (4 << 10, 1 << 17), "16KB": (16 << 10, 1 << 16), "100KB": (100 << 10, 20_000)}  # bytes of a sample, samples

pytestmark = [
    pytest.mark.skipif(not FOLDER, reason="measures times: LCACHE_CAPPED names a folder with 8 GB to spare, on a machine that does nothing else"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a capped volume"),
]


def output_of(*command, **more):
    ended = subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)
    assert ended.returncode == 0, f"{command}: {ended.stderr}"
    return ended.stdout


def again(*command):
    """Runs a command until it succeeds: the kernel calls a device busy for a moment after its last user."""
    until(lambda: subprocess.run([str(word) for word in command], capture_output=True).returncode == 0, f"success of {' '.join(map(str, command))}")


@pytest.fixture(scope="module", params=VOLUMES, ids=lambda limits: f"{limits[0]}-{limits[1] >> 20}MiB")
def capped(request):
    """(a mounted volume, a function that puts a process under its limits, the limits)."""
    operations, rate_limit = request.param
    with contextlib.ExitStack() as undo:
        image, volume = pathlib.Path(FOLDER, "lcache-capped.img"), pathlib.Path(FOLDER, "lcache-capped")
        undo.callback(image.unlink, missing_ok=True)
        with open(image, "wb") as file:
            in_memory = output_of("stat", "-f", "-c", "%T", FOLDER).strip() == "tmpfs"
            if in_memory:
                os.truncate(file.fileno(), 5 << 30)
            else:
                os.posix_fallocate(file.fileno(), 0, 5 << 30)
        device = output_of("losetup", "--find", "--show", "--direct-io=off" if in_memory else "--direct-io=on", image).strip()
        undo.callback(again, "losetup", "-d", device)
        output_of("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", device)
        volume.mkdir()
        undo.callback(volume.rmdir)
        output_of("mount", "-o", "noatime,discard", device, volume)
        undo.callback(again, "umount", volume)
        number = output_of("lsblk", "-ndo", "MAJ:MIN", device).strip()
        mounts = [line.split() for line in pathlib.Path("/proc/mounts").read_text().splitlines()]
        unified = next((m[1] for m in mounts if m[2] == "cgroup2" and "io" in pathlib.Path(m[1], "cgroup.controllers").read_text().split()), None)
        blkio = next((m[1] for m in mounts if m[2] == "cgroup" and "blkio" in m[3].split(",")), None)
        if not unified and not blkio:
            pytest.skip("no cgroup controller io or blkio is mounted")
        group = pathlib.Path(unified or blkio, f"lcache-capped-{os.getpid()}")
        if unified:
            pathlib.Path(unified, "cgroup.subtree_control").write_text("+io")
        group.mkdir()
        undo.callback(again, "rmdir", group)
        if unified:
            (group / "io.max").write_text(f"{number} riops={operations} wiops={operations} rbps={rate_limit} wbps={rate_limit}")
        else:
            for way in ("read", "write"):
                (group / f"blkio.throttle.{way}_iops_device").write_text(f"{number} {operations}")
                (group / f"blkio.throttle.{way}_bps_device").write_text(f"{number} {rate_limit}")
        yield volume, lambda: (group / "cgroup.procs").write_text("0\n"), request.param


READS = """
import mmap, os, sys, threading, time
file, total, at, lock = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT), int(sys.argv[2]), 0, threading.Lock()
def read():
    global at
    memory = mmap.mmap(-1, 1 << 20)
    while True:
        with lock:
            mine, at = at, at + (1 << 20)
        if mine >= total:
            return
        os.preadv(file, [memory], mine)
began = time.monotonic()
threads = [threading.Thread(target=read) for _ in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(time.monotonic() - began)
"""


@pytest.fixture(scope="module")
def burst(capped):
    """The burst that the volume allows after a rest, in seconds of its limits, because the kernel counts in slices of time. It is an input of the plan."""
    volume, enter, (_, rate) = capped
    total = rate // 2 >> 20 << 20
    file = volume / "burst"
    file.write_bytes(os.urandom(total))
    os.sync()
    most = 0.0
    for _ in range(3):
        time.sleep(1)  # the rest after which the kernel allows a burst
        most = max(most, total / rate - float(output_of(sys.executable, "-c", READS, file, total, preexec_fn=enter)))
    file.unlink()
    print(f"burst {most:.3f} s")
    assert 0 <= most < 0.2
    return most


@pytest.mark.parametrize("layout", ["log", "static"])
@pytest.mark.parametrize("name", SETS)
def test_plan_holds(capped, burst, tmp_path, name, layout):
    volume, enter, (operations, rate_limit) = capped
    size, samples = SETS[name]
    source = pathlib.Path(FOLDER, f"lcache-capped-{name}")
    if not source.exists():
        block = os.urandom(size + 997)
        for i in range(samples):
            path = source / f"{i % 64:02}" / f"{i:06}"
            if i < 64:
                path.parent.mkdir(parents=True)
            path.write_bytes(block[i % 997 :][:size])
    cache = volume / f"{name}-{layout}"
    job = ["--recipe", "torch.distributed_sampler", "--batch-size", "256", "--epochs", "9"]
    memory = "256MB"
    lcache = realserver.BINARY
    output_of(lcache, "ingest", "--source", source, "--cache", cache, *job, "--layout", layout, "--memory", memory, "--quiet")
    try:
        measured = json.loads(output_of(lcache, "bench", "--cache", cache, "--memory", memory, "--layout", layout, "--json", "--quiet", "--python", "/none", preexec_fn=enter))
        facts = ["--samples", samples, "--bytes", size * samples, "--batch-size", 256, "--epochs", 9, "--budget", "3GB", "--memory", memory, "--source-bw", "unlimited", "--consumer", "unlimited"]
        disk = ["--read-bw", f"{rate_limit}B/s", "--write-bw", f"{rate_limit}B/s", "--read-iops", operations, "--write-iops", operations, "--op-size", "1MiB", "--burst", f"{burst:.4f}"]
        plan = json.loads(output_of(lcache, "plan", "--facts", "off", *facts, *disk, "--json"))
    finally:
        output_of(lcache, "rm", cache)
    (row,) = [row for row in plan["policies"] if row["policy"] == layout]
    (epoch,) = [e for e in measured["epochs"] if e["into"] == "nothing" and e["reorder"] == (layout == "log")]
    assert epoch["misses"] == 0, "the volume is too small: some samples were read from the source"
    apart = epoch["seconds"] / row["rested_s"] - 1  # of a single epoch
    print(f"{operations} {name} {layout}: measured {epoch['seconds']:.2f} s, planned {row['rested_s']:.2f} s, {100 * apart:+.1f} %")
    assert abs(apart) < 0.1


@pytest.mark.parametrize("size, samples, layout", [(16 << 10, 2000, "log"), (400 << 10, 100, "static")])
def test_auto_measures_and_chooses(capped, tmp_path, size, samples, layout):
    """The disk of a new cache is measured in less than 3 s. The result is kept, and chooses the layout. The next server does not measure."""
    volume, enter, (operations, rate_limit) = capped
    source, cache = tmp_path / "source", volume / f"auto-{layout}"
    source.mkdir()
    for i in range(samples):
        (source / f"{i:06}").write_bytes(os.urandom(size))
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "xdg"), "LCACHE_FACTS": ""}
    report = json.loads(output_of(realserver.BINARY, "ingest", "--source", source, "--cache", cache, "--no-prefill", "--json", "--quiet", preexec_fn=enter, env=env))
    output_of(realserver.BINARY, "rm", cache)
    assert report["layout"] == layout and "by a disk that was measured on" in report["layout_reason"], report["layout_reason"]
    (kept,) = (tmp_path / "xdg" / "lcache" / "devices").iterdir()
    device = json.loads(kept.read_text())["device"]
    print(f"{report['layout']}: {report['layout_reason']}\n{device}")
    assert device["seconds"] < 2.6  # plus 0.4 s for its file
    # 0.3 s has only three of the slices in which the kernel throttles, which limits the accuracy of the measurement.
    for name, limit in {"read_bytes_per_second": rate_limit, "write_bytes_per_second": rate_limit, "read_iops": operations, "write_iops": operations}.items():
        assert 0.6 < device[name] / limit < 1.5, name
