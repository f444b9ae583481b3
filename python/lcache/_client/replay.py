"""Compares the order's options that a program names with those of a running server.

A difference is never ignored. Either the lcache program computes the named order, which is pushed epoch by epoch, or an error names both values.
Sizes (budget, memory) are not compared.
"""

from __future__ import annotations

import subprocess
from array import array
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..errors import ArgumentError, Error
from .info import Info
from .options import Options


class Replay(NamedTuple):
    """An order that the job's server does not have. It can be pickled for worker processes."""

    recipe: str
    seed: str
    batch_size: int
    world: int
    drop_last: bool
    params: Mapping[str, str]
    epochs: int
    differs: str  # the difference from the server's order, for messages
    program: str  # path of the lcache program

    def order(self, samples: int, epoch: int, rank: int) -> list[array[int]]:
        """The batches of one epoch and rank, as dataset indices. Raises ArgumentError if the lcache program refuses the options."""
        command = [self.program, "order", "--recipe", self.recipe, "--samples", str(samples), "--batch-size", str(self.batch_size)]
        command += ["--world-size", str(self.world), "--epoch", str(epoch), "--rank", str(rank), "--format", "u32le"]
        command += ["--seed", self.seed] if self.seed else []
        command += ["--drop-last"] if self.drop_last else []
        for key, value in self.params.items():
            command += ["--param", f"{key}={value}"]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        except OSError as e:
            raise Error(f"start {self.program}: {e.strerror}; set LCACHE_BIN to the lcache program") from None
        if done.returncode != 0:
            raise ArgumentError(f"compute the order of epoch {epoch}: {done.stderr.decode(errors='backslashreplace').strip()}")
        flat = array("I", done.stdout)
        return [flat[at : at + self.batch_size] for at in range(0, len(flat), self.batch_size)]


def replay_for(named: Options, info: Info, world: int, program: Callable[[], str]) -> Replay | None:
    """The order that the program names, if the server has another one. None if neither names an order, or both name the same.

    world is the number of processes that the launcher started. program finds the lcache program. Raises ArgumentError if this server can't be used.
    """
    where = f"the server (pid {info.pid}) that has {info.source}"
    if named.on_error is not None and named.on_error != info.on_error:
        raise ArgumentError(_refusal("on_error", named.on_error, info.on_error, where))
    if named.recipe is None and not info.recipe:
        return None  # the program pushes orders, or reads by index
    full = named.recipe is not None  # a named recipe replaces all of the server's order
    its_world = info.world or world if info.recipe else world  # without an order the world size has no effect
    if (full or named.world_size is not None) and world != its_world:
        raise ArgumentError(_refusal("world_size", world, its_world, where))
    if named.epochs and info.epochs and named.epochs > info.epochs:
        raise ArgumentError(_refusal("epochs", named.epochs, info.epochs, where))
    mine = Replay(
        recipe=named.recipe if named.recipe is not None else info.recipe,
        seed=str(named.seed) if named.seed is not None else "" if full else info.seed,
        batch_size=named.batch_size or info.batch_size,
        world=its_world,
        drop_last=bool(named.drop_last) if full or named.drop_last is not None else info.drop_last,
        params=dict(named.params or {}) if full or named.params is not None else info.params,
        epochs=named.epochs or info.epochs,
        differs="",
        program="",
    )
    theirs = mine._replace(recipe=info.recipe, seed=info.seed, batch_size=info.batch_size, drop_last=info.drop_last, params=info.params)
    names = [name for name in ("recipe", "seed", "batch_size", "drop_last", "params") if getattr(mine, name) != getattr(theirs, name)]
    if not names:
        return None
    if mine.batch_size <= 0:
        raise ArgumentError(f"recipe {mine.recipe} needs a batch size, and {where} has none: give batch_size=")
    if mine.params.get("split_batches") == "true":
        raise ArgumentError(_refusal("params", mine.params, info.params, where))
    differs = ", ".join(f"{name}={getattr(mine, name)!r}, where it has {getattr(theirs, name)!r}" for name in names)
    return mine._replace(differs=differs, program=program())


def _refusal(name: str, mine: Any, theirs: Any, where: str) -> str:
    return f"this program gives {name}={mine!r}, and {where} has {name}={theirs!r}: give the same, stop that server, or give another cache="
