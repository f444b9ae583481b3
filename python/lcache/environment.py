"""What the environment of this process says: its place in a world of processes, and the sockets of servers that run already."""

from __future__ import annotations

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
        if rank_name == "SLURM_PROCID" and env.get("SLURM_JOB_NAME") in ("bash", "interactive"):
            continue  # a shell within an allocation: the variables describe the allocation, not this process
        local_rank, local_size = _integer(env, local_rank_name), _integer(env, local_size_name)
        if local_rank is None or local_size is None or not 0 <= local_rank < local_size or local_rank > rank:
            return World(size, rank, list(range(size)))
        first = rank - local_rank
        return World(size, rank, list(range(first, min(size, first + local_size))))
    return World(1, 0, [0])


def offered_sockets(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """The paths of LCACHE_SOCKET and LCACHE_SOCKET_<NAME>, by variable: LCACHE_SOCKET first, each path once."""
    env = os.environ if env is None else env
    names = sorted(name for name in env if name == _SOCKET or (name.startswith(_SOCKET + "_") and name not in _NOT_SOCKETS))
    found: dict[str, str] = {}
    for name in names:
        if env[name] and env[name] not in found.values():
            found[name] = env[name]
    return found


def _integer(env: Mapping[str, str], *names: str) -> int | None:
    """The first of the variables that is an integer; None if none is."""
    for name in names:
        try:
            return int(env[name])
        except (KeyError, ValueError):
            continue
    return None
