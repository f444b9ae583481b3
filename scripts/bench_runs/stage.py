"""The stage of bench-runs and bench-cluster: volumes on loop devices, held to rates by blkio and to memory by a cgroup, and taken down whatever happens.

Leaving the context takes it down, after an exception, a SIGTERM, SIGINT or SIGHUP, too. A SIGKILL leaves an empty folder and empty control groups: the mounts
are in a namespace of this process, and the kernel frees the devices and their files, which have no names, with the process.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
CAPS = (3000, 524288000)  # operations and bytes of a capped volume per second, for reads and for writes


class Unable(Exception):
    """This machine can't give the stage; the text says why."""


def run(*command: str | Path, timeout: float = 120) -> str:
    """Runs a tool to its end and returns its output. Raises RuntimeError with the tool's error text."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.returncode}")
    return done.stdout.strip()


def retry(*command: str | Path) -> None:
    """Runs a command of taking down again for ten seconds while the kernel calls its object busy."""
    for left in range(20, -1, -1):
        try:
            run(*command)
            return
        except RuntimeError:
            if not left:
                raise
            time.sleep(0.5)


class Volume:
    """A file system on a loop device."""

    def __init__(self, folder: Path, name: str, size: int) -> None:
        self.folder, self.image, self.size = folder / name, folder / f"{name}.image", size

    def make(self, undo: contextlib.ExitStack) -> None:
        where = self.image.parent
        free = shutil.disk_usage(where).free
        if free < self.size * 1.02:
            raise Unable(f"{where} has {free / 1e9:.1f} GB free, and the volume needs {self.size / 1e9:.1f} GB: give another --dir, or fewer --bytes")
        with self.image.open("wb") as f:
            try:
                os.posix_fallocate(f.fileno(), 0, self.size)
            except OSError as e:  # a file system in memory says that it is free, and has less
                raise Unable(f"{where} has no room for a volume of {self.size / 1e9:.1f} GB ({e.strerror}): give another --dir, or fewer --bytes") from None
        try:
            self.device = run("losetup", "--find", "--show", "--direct-io=on", self.image)
        except RuntimeError as e:
            raise Unable(f"no loop device: {e}") from None
        try:
            direct = run("losetup", "--list", "--noheadings", "--output", "DIO", self.device)
            held = os.open(self.device, os.O_RDONLY)
        finally:
            run("losetup", "-d", self.device)  # not before it is closed and unmounted
        undo.callback(os.close, held)
        self.image.unlink()
        if direct != "1":
            raise Unable(f"{self.device} has no direct I/O to {self.image}: the page cache below it would answer; give a --dir on ext4 or xfs")
        run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", "-i", "8192", self.device)
        self.folder.mkdir()
        self.mount()
        undo.callback(self.unmount)
        self.number = run("lsblk", "-ndo", "MAJ:MIN", self.device).strip()

    def mount(self) -> None:
        try:
            run("mount", "-o", "noatime", self.device, self.folder)
        except RuntimeError as e:
            raise Unable(f"no mount: {e}") from None

    def unmount(self) -> None:
        if os.path.ismount(self.folder):
            retry("umount", self.folder)

    def moved(self) -> tuple[int, int]:
        """Bytes that the device has read and written so far."""
        fields = Path(f"/sys/block/{Path(self.device).name}/stat").read_text().split()
        return int(fields[2]) * 512, int(fields[6]) * 512


class Stage:
    """Volumes and the control groups of the processes that are measured on them. A context: leaving it takes everything down.

    memory of 0 is no limit. caps are operations and bytes of each volume per second; None: no limit. With alone, the processes have a loopback interface
    of their own, and no other network.
    """

    def __init__(self, folder: Path, size: int, caps: tuple[int, int] | None, memory: int, volumes: int = 1, alone: bool = False) -> None:
        self.caps, self.memory, self.alone = caps, memory, alone
        self.groups: list[Path] = []
        self.undo = contextlib.ExitStack()
        self.folder = Path(tempfile.mkdtemp(prefix="lcache-bench-", dir=folder))
        self.undo.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.volumes = [Volume(self.folder, f"volume{i or ''}", size) for i in range(volumes)]
        self.volume = self.volumes[0].folder

    def __enter__(self) -> Stage:
        atexit.register(self.undo.close)
        self.before = {number: signal.getsignal(number) for number in ENDS}
        for number in ENDS:
            if number == signal.SIGINT:  # background processes of a shell ignore it
                signal.signal(number, signal.default_int_handler)
            elif self.before[number] != signal.SIG_IGN:  # nohup ignores SIGHUP on purpose
                signal.signal(number, lambda number, _: sys.exit(128 + number))
        try:
            self._make_namespaces()
            for volume in self.volumes:
                volume.make(self.undo)
            self._make_groups()
            self.limit(0)
        except BaseException:
            self.undo.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for number in ENDS:
            signal.signal(number, signal.SIG_IGN)  # a second one would leave a part of it
        self.end_processes(0)
        self.undo.close()
        for number in ENDS:
            signal.signal(number, self.before[number])

    def _make_namespaces(self) -> None:
        """Lets the kernel free the mounts and the network when this process ends, however that happens."""
        libc = ctypes.CDLL(None, use_errno=True)
        for what, flag in (("mount", 0x20000), *([("network", 0x40000000)] if self.alone else [])):  # CLONE_NEWNS, CLONE_NEWNET
            if libc.unshare(flag):
                raise Unable(f"no {what} namespace: {os.strerror(ctypes.get_errno())}")
        run("mount", "--make-rprivate", "/")
        if self.alone:
            run("ip", "link", "set", "lo", "up")

    def remount(self) -> None:
        """Mounts the volumes again, which removes their pages from the page cache. Other programs' pages stay."""
        for volume in self.volumes:
            volume.unmount()
            volume.mount()

    def _make_groups(self) -> None:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
        name = f"lcache-bench-{os.getpid()}"
        v1 = {c: Path(m[1]) for m in mounts if m[2] == "cgroup" for c in m[3].split(",")}
        v2 = [Path(m[1]) for m in mounts if m[2] == "cgroup2"]
        unified = next((m for m in v2 if {"io", "memory"} <= set((m / "cgroup.controllers").read_text().split())), None)
        if unified:
            group = self._group(unified / name, unified)
            self._limit, self._kills = group / "memory.max", group / "memory.events"
            with contextlib.suppress(Unable):
                self._write(group / "memory.swap.max", 0)  # a machine without swap has no such file
            for volume in self.volumes if self.caps else ():
                operations, rate = self.caps
                self._write(group / "io.max", f"{volume.number} riops={operations} wiops={operations} rbps={rate} wbps={rate}")
            self.cpu = lambda: int(dict(x.split() for x in (group / "cpu.stat").read_text().splitlines())["usage_usec"]) / 1e6
            return
        memory = self._group(self._v1(v1, "memory") / name)
        self._limit, self._kills = memory / "memory.limit_in_bytes", memory / "memory.oom_control"
        cpu = self._group(self._v1(v1, "cpuacct") / name)
        self.cpu = lambda: int((cpu / "cpuacct.usage").read_text()) / 1e9
        if self.caps:
            blkio = self._group(self._v1(v1, "blkio") / name)
            for volume in self.volumes:
                for way in ("read", "write"):
                    self._write(blkio / f"blkio.throttle.{way}_iops_device", f"{volume.number} {self.caps[0]}")
                    self._write(blkio / f"blkio.throttle.{way}_bps_device", f"{volume.number} {self.caps[1]}")

    def limit(self, aside: int) -> None:
        """Sets the memory of the processes that start next: room for cached samples, plus aside for the programs themselves."""
        if self.memory:
            self._write(self._limit, self.memory + aside)

    def kills(self) -> int:
        """How many processes the kernel has ended for want of memory."""
        fields = dict(line.split() for line in self._kills.read_text().splitlines())
        return int(fields.get("oom_kill", 0))

    def _v1(self, mounted: dict[str, Path], controller: str) -> Path:
        """The root of a v1 hierarchy; mounted for the time being if it isn't."""
        if controller in mounted:
            return mounted[controller]
        where = self.folder / f"cgroup-{controller}"
        where.mkdir()
        try:
            run("mount", "-t", "cgroup", "-o", controller, "none", where)
        except RuntimeError as e:
            raise Unable(f"no cgroup controller {controller}, neither v1 nor v2: {e}") from None
        self.undo.callback(retry, "umount", where)
        return where

    def _group(self, path: Path, unified: Path | None = None) -> Path:
        try:
            if unified:
                self._write(unified / "cgroup.subtree_control", "+io +memory")
            path.mkdir()
        except OSError as e:
            raise Unable(f"no control group: {e}") from None
        self.groups.append(path)
        self.undo.callback(self._remove_group, path)
        return path

    @staticmethod
    def _remove_group(path: Path) -> None:
        for left in range(20, -1, -1):
            try:
                path.rmdir()
                return
            except OSError:
                if not left:
                    raise
                time.sleep(0.5)

    @staticmethod
    def _write(path: Path, value: object) -> None:
        try:
            path.write_text(f"{value}\n")
        except OSError as e:
            raise Unable(f"{path}: {e.strerror}") from None

    def start(self, command: list[str], env: dict[str, str]) -> subprocess.Popen[str]:
        """Starts a measured process in the groups. It gets a SIGKILL if this process ends before it."""
        prctl = ctypes.CDLL(None, use_errno=True).prctl

        def enter() -> None:
            for group in self.groups:
                (group / "cgroup.procs").write_text("0\n")
            prctl(1, signal.SIGKILL)

        return subprocess.Popen(
            command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=enter, start_new_session=True
        )

    def processes(self) -> set[int]:
        return {int(pid) for group in self.groups for pid in (group / "cgroup.procs").read_text().split()}

    def end_processes(self, patience: float) -> bool:
        """Waits until no process is left in the groups. Those that are left after it get a SIGKILL; says whether none was."""
        for wait, kill in ((patience, False), (20.0, True)):
            until = time.monotonic() + wait
            while self.processes():
                if kill:
                    for pid in self.processes():
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                if time.monotonic() >= until:
                    break
                time.sleep(0.05)
            else:
                return not kill
        return False

    def moved(self) -> tuple[int, int]:
        """Bytes that the devices have read and written so far."""
        all_of = [volume.moved() for volume in self.volumes]
        return sum(read for read, _ in all_of), sum(written for _, written in all_of)
