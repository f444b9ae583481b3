"""What the environment of this process says: its run, its place in a world of processes, and the sockets of servers that run already."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import NamedTuple

_SOCKET = "LCACHE_SOCKET"
_NOT_SOCKETS = (_SOCKET + "_MODE", _SOCKET + "_GROUP")  # flags of `lcache serve`

# (world size, rank, rank on this machine, processes on this machine), as torchrun and Slurm's srun name them.
_LAUNCHERS = (
    (("WORLD_SIZE",), "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    (("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
)

_NO_RUN = ("none", "static")  # what torchrun calls a run that was given no id


class World(NamedTuple):
    """size processes in all. This process is number rank of them. local_ranks are the ranks on this machine."""

    size: int
    rank: int
    local_ranks: list[int]


def launched_world(env: Mapping[str, str] | None = None) -> World:
    """Reads the launcher's variables; World(1, 0, [0]) without a launcher.

    Without variables about this machine, local_ranks holds every rank.
    """
    env = os.environ if env is None else env
    for size_names, rank_name, local_rank_name, local_size_name in _LAUNCHERS:
        size, rank = _integer(env, *size_names), _integer(env, rank_name)
        if size is None or rank is None or not 0 <= rank < size:
            continue
        if rank_name == "SLURM_PROCID" and _is_slurm_shell(env):
            continue
        local_rank, local_size = _integer(env, local_rank_name), _integer(env, local_size_name)
        if local_rank is None or local_size is None or not 0 <= local_rank < local_size or local_rank > rank:
            return World(size, rank, list(range(size)))
        first = rank - local_rank
        return World(size, rank, list(range(first, min(size, first + local_size))))
    return World(1, 0, [0])


def launched_run(env: Mapping[str, str] | None = None, several: bool = False) -> str | None:
    """The id of the run that a launcher started, the same in all processes of the run and in no other run; None without a launcher.

    several: this process is one of several, though no variable says so.
    """
    env = os.environ if env is None else env
    name = env.get("TORCHELASTIC_RUN_ID", "")
    if name and name not in _NO_RUN:
        return name
    if name == "" and _integer(env, "SLURM_PROCID") is not None and not _is_slurm_shell(env):
        step = env.get("SLURM_STEP_ID") or env.get("SLURM_STEPID")
        if env.get("SLURM_JOB_ID") and step:
            return f"slurm-{env['SLURM_JOB_ID']}.{step}"
    size, host, port = _integer(env, "WORLD_SIZE"), env.get("MASTER_ADDR"), env.get("MASTER_PORT")
    return f"{host}:{port}" if host and port and (name or several or (size or 1) > 1) else None


def process_run() -> str:
    """An id of this process, which no later process has: with the pid, and a hash of when and where the process started."""
    parts = [str(os.getpid())]
    for path, place in (("/proc/sys/kernel/random/boot_id", 0), ("/proc/self/stat", 19)):  # field 22 of stat, counted from behind the name
        with open(path) as f:
            parts.append(f.read().rpartition(")")[2].split()[place])
    try:
        parts.append(os.readlink("/proc/self/ns/pid"))  # containers count their processes each by itself
    except OSError:
        pass  # not every sandbox has it
    return f"pid-{os.getpid()}-{hashlib.sha256(' '.join(parts).encode()).hexdigest()[:8]}"


def offered_sockets(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """The paths of LCACHE_SOCKET and LCACHE_SOCKET_<NAME>, by variable: LCACHE_SOCKET first, each path once."""
    env = os.environ if env is None else env
    names = sorted(name for name in env if name == _SOCKET or (name.startswith(_SOCKET + "_") and name not in _NOT_SOCKETS))
    found: dict[str, str] = {}
    for name in names:
        if env[name] and env[name] not in found.values():
            found[name] = env[name]
    return found


def _is_slurm_shell(env: Mapping[str, str]) -> bool:
    """Whether this is a shell within an allocation: the variables describe the allocation, not this process."""
    return env.get("SLURM_JOB_NAME") in ("bash", "interactive")


def _integer(env: Mapping[str, str], *names: str) -> int | None:
    """The first of the variables that is an integer; None if none is."""
    for name in names:
        try:
            return int(env[name])
        except (KeyError, ValueError):
            continue
    return None
