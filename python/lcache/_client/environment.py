"""The environment of this process: its run, its rank and world size, and the sockets of running servers."""

from __future__ import annotations

import hashlib
import os
import re
from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate
from typing import NamedTuple

_SOCKET = "LCACHE_SOCKET"
_NOT_SOCKETS = (_SOCKET + "_MODE", _SOCKET + "_GROUP")  # flags of `lcache serve`

# (world size, rank, rank on this machine), as torchrun and Slurm's srun name them.
_LAUNCHERS = (
    (("WORLD_SIZE",), "RANK", "LOCAL_RANK"),
    (("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), "SLURM_PROCID", "SLURM_LOCALID"),
)

_MOST = 1 << 16  # ranks: the protocol has two bytes for a rank

_NO_RUN = ("none", "static")  # the ids that torchrun gives to a run without one


class World(NamedTuple):
    """The number of processes, and this process's rank. local_ranks are the ranks on this machine; None: the variables don't say."""

    size: int
    rank: int
    local_ranks: list[int] | None


def launched_world(env: Mapping[str, str] | None = None) -> World:
    """Reads the launcher's variables, as cmd/lcache/internal/launch/world.go does; World(1, 0, None) without a launcher."""
    env = os.environ if env is None else env
    for size_names, rank_name, local_rank_name in _LAUNCHERS:
        size, rank, local_rank = integer(env, *size_names), integer(env, rank_name), integer(env, local_rank_name)
        if size is None or rank is None or not 0 <= rank < size <= _MOST:
            continue
        is_slurm = rank_name == "SLURM_PROCID"
        if is_slurm and _is_slurm_shell(env):
            continue
        local_size = _slurm_local_size(env, size, rank) if is_slurm else integer(env, "LOCAL_WORLD_SIZE")
        if local_rank is None or local_size is None or not 0 <= local_rank < local_size or local_rank > rank:
            return World(size, rank, None)
        first = rank - local_rank
        ids = _slurm_ids(env, size, rank, local_size) if is_slurm else None
        return World(size, rank, ids or list(range(first, min(size, first + local_size))))
    return World(1, 0, None)


def _slurm_local_size(env: Mapping[str, str], size: int, rank: int) -> int | None:
    """The number of a step's tasks on this machine, from the list of tasks per machine, such as 2(x3),1, or from the limit given to srun."""
    counts: list[int] = []
    for part in (env.get("SLURM_STEP_TASKS_PER_NODE") or env.get("SLURM_TASKS_PER_NODE", "")).split(","):
        match = re.fullmatch(r"(\d{1,5})(?:\(x(\d{1,5})\))?", part, re.ASCII)
        count, times = (int(match[1]), int(match[2] or 1)) if match else (0, 0)
        if count < 1 or len(counts) + times > size:
            counts = []
            break
        counts += [count] * times
    if sum(counts) != size:  # the list describes the allocation, not this step
        return integer(env, "SLURM_NTASKS_PER_NODE")
    machine = integer(env, "SLURM_NODEID")
    if machine is None or not 0 <= machine < len(counts):
        machine = bisect_right(list(accumulate(counts)), rank)
    return counts[machine]


def _slurm_ids(env: Mapping[str, str], size: int, rank: int, local_size: int) -> list[int] | None:
    """The ranks on this machine, if Slurm lists all of them. They need not be consecutive."""
    text = env.get("SLURM_GTIDS", "")
    ids = {int(part) for part in text.split(",")} if re.fullmatch(r"\d{1,5}(,\d{1,5})*", text, re.ASCII) else set()
    return sorted(ids) if len(ids) == local_size and rank in ids and max(ids) < size else None


def launched_run(env: Mapping[str, str] | None = None, several: bool = False) -> str | None:
    """The id of the run that a launcher started: the same in all processes of the run, and different for each run. None without a launcher.

    several: this process is one of several, although no variable says so.
    """
    env = os.environ if env is None else env
    name = env.get("TORCHELASTIC_RUN_ID", "")
    if name and name not in _NO_RUN:
        return name
    if name == "" and integer(env, "SLURM_PROCID") is not None and not _is_slurm_shell(env):
        step = env.get("SLURM_STEP_ID") or env.get("SLURM_STEPID")
        if env.get("SLURM_JOB_ID") and step:
            return f"slurm-{env['SLURM_JOB_ID']}.{step}"
    size, host, port = integer(env, "WORLD_SIZE"), env.get("MASTER_ADDR"), env.get("MASTER_PORT")
    return f"{host}:{port}" if host and port and (name or several or (size or 1) > 1) else None


def process_run() -> str:
    """An id that no later process has: the pid, and a hash of the time and machine of the start."""
    parts = [str(os.getpid())]
    for path, place in (("/proc/sys/kernel/random/boot_id", 0), ("/proc/self/stat", 19)):  # field 22 of stat, counted after the name
        with open(path) as f:
            parts.append(f.read().rpartition(")")[2].split()[place])
    try:
        parts.append(os.readlink("/proc/self/ns/pid"))  # each container counts its own processes
    except OSError:
        pass  # not every sandbox has it
    return f"pid-{os.getpid()}-{hashlib.sha256(' '.join(parts).encode()).hexdigest()[:8]}"


def offered_sockets(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """The paths in LCACHE_SOCKET and LCACHE_SOCKET_<NAME>, by variable. LCACHE_SOCKET is first, and each path is listed once."""
    env = os.environ if env is None else env
    names = sorted(name for name in env if name == _SOCKET or (name.startswith(_SOCKET + "_") and name not in _NOT_SOCKETS))
    found: dict[str, str] = {}
    for name in names:
        if env[name] and env[name] not in found.values():
            found[name] = env[name]
    return found


def _is_slurm_shell(env: Mapping[str, str]) -> bool:
    """Whether this is a shell within an allocation, whose variables describe the allocation and not this process."""
    return env.get("SLURM_JOB_NAME") in ("bash", "interactive")


def integer(env: Mapping[str, str], *names: str) -> int | None:
    """The first of the variables that is an integer; None if none is."""
    for name in names:
        try:
            return int(env[name])
        except (KeyError, ValueError):
            continue
    return None
