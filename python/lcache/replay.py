"""Options of the order that a program names, beside those of a server that runs already.

What differs is never passed over in silence: the program's own order is computed by the lcache program and pushed, epoch by epoch, or there is
an error that names both values. Sizes (budget, memory) never decide.
"""

from __future__ import annotations

import json
import subprocess
from array import array
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .errors import ArgumentError, Error
from .info import Info


class Options(NamedTuple):
    """Of lcache.open; None: not said."""

    recipe: str | None = None
    seed: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    world_size: int | None = None
    drop_last: bool | None = None
    params: Mapping[str, str] | None = None  # as `--param` takes them
    on_error: str | None = None

    def flags(self) -> list[str]:
        """Of `lcache ingest` and `lcache order`, without what concerns the world of processes."""
        flags = [] if self.recipe is None else ["--recipe", self.recipe]
        for name, value in (("--seed", self.seed), ("--epochs", self.epochs), ("--batch-size", self.batch_size)):
            flags += [] if value is None else [name, str(value)]
        flags += ["--drop-last"] if self.drop_last else []
        for key, value in (self.params or {}).items():
            flags += ["--param", f"{key}={value}"]
        return flags


def params(given: Mapping[str, Any] | None) -> dict[str, str] | None:
    """A recipe's parameters as text: strings bare, everything else as JSON."""
    if given is None:
        return None
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in given.items()}


class Replay(NamedTuple):
    """The order of a job that its server does not have. It pickles, for workers."""

    recipe: str
    seed: str
    batch_size: int
    world: int
    drop_last: bool
    params: dict[str, str]
    epochs: int
    differs: str  # from the server's order, for messages
    program: str  # that computes it

    def order(self, samples: int, epoch: int, rank: int) -> list[array[int]]:
        """The batches of one rank."""
        command = [self.program, "order", "--recipe", self.recipe, "--samples", str(samples), "--batch-size", str(self.batch_size), "--world-size", str(self.world)]
        command += ["--epoch", str(epoch), "--rank", str(rank), "--format", "u32le"]
        command += ["--seed", self.seed] if self.seed else []
        command += ["--drop-last"] if self.drop_last else []
        for key, value in self.params.items():
            command += ["--param", f"{key}={value}"]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        except OSError as e:
            raise Error(f"start {self.program}: {e.strerror}; set LCACHE_BIN to the lcache program") from None
        if done.returncode != 0:
            raise ArgumentError(f"the order of epoch {epoch}: {done.stderr.decode(errors='replace').strip()}")
        flat = array("I", done.stdout)
        return [flat[at : at + self.batch_size] for at in range(0, len(flat), self.batch_size)]


def beside(named: Options, info: Info, world: int, program: Callable[[], str]) -> Replay | None:
    """The order that the program names, if the server has another one; None if it has the same, or none that it could differ from.
    world is that of the launcher. ArgumentError if the server can't be used for it."""
    where = f"the server (pid {info.pid}) that has {info.source}"
    if named.on_error is not None and named.on_error != info.on_error:
        raise ArgumentError(_refusal("on_error", named.on_error, info.on_error, where))
    if named.recipe is None and not info.recipe:
        return None  # orders are pushed, or samples asked for by index
    full = named.recipe is not None
    if (full or named.world_size is not None) and world != info.world:
        raise ArgumentError(_refusal("world_size", world, info.world, where))
    if named.epochs and info.epochs and named.epochs > info.epochs:
        raise ArgumentError(_refusal("epochs", named.epochs, info.epochs, where))
    mine = Replay(
        recipe=named.recipe if named.recipe is not None else info.recipe,
        seed=str(named.seed) if named.seed is not None else "" if full else info.seed,
        batch_size=named.batch_size or info.batch_size,
        world=info.world,
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
        raise ArgumentError(f"recipe {mine.recipe} needs a batch_size: {where} has none")
    if mine.params.get("split_batches") == "true":
        raise ArgumentError(_refusal("params", mine.params, info.params, where))
    differs = ", ".join(f"{name}={getattr(mine, name)!r}, where it has {getattr(theirs, name)!r}" for name in names)
    return mine._replace(differs=differs, program=program())


def _refusal(name: str, mine: Any, theirs: Any, where: str) -> str:
    return f"this program asks for {name}={mine!r}, {where} has {name}={theirs!r}: name the same, end that server, or give another cache="
