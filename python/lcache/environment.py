"""Which of how many processes this one is, as its launcher says in the environment: torchrun, or Slurm's srun."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple


class Place(NamedTuple):
    """world processes in all, of which this is number rank; ranks are those of this machine."""

    world: int
    rank: int
    ranks: list[int]


def place(env: Mapping[str, str] | None = None) -> Place:
    """Place(1, 0, [0]) when no launcher says anything. A launcher that does not tell who else is on this machine means all of them."""
    env = os.environ if env is None else env
    for size, number, local, here in _LAUNCHERS:
        world, rank = _number(env, *size), _number(env, number)
        if world is None or rank is None or not 0 <= rank < world:
            continue
        if number == "SLURM_PROCID" and env.get("SLURM_JOB_NAME") in ("bash", "interactive"):
            continue  # a shell within an allocation: its variables are the allocation's, not this process's
        at, count = _number(env, local), _number(env, here)
        if at is None or count is None or not 0 <= at < count or at > rank:
            return Place(world, rank, list(range(world)))
        return Place(world, rank, list(range(rank - at, min(world, rank - at + count))))
    return Place(1, 0, [0])


_LAUNCHERS = (
    (("WORLD_SIZE",), "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    (("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
)


def _number(env: Mapping[str, str], *names: str) -> int | None:
    for name in names:
        try:
            return int(env[name])
        except (KeyError, ValueError):
            continue
    return None
