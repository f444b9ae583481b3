"""Copies of samplers that can be run ahead without the sampler, or any random state, noticing.

A copy shares the datasets, has generators of its own in the same state, and runs between a save and a restore of the global random states.
"""

from __future__ import annotations

import contextlib
import copy
import random
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch
import torch.utils.data
from torch.utils.data import Sampler

from ..errors import Error


ENDLESS = 1 << 24  # batches of a sampler without a length


class Generators:
    """The generators of its own that a sampler draws from, in a fixed order, and their states."""

    def __init__(self, sampler: Any) -> None:
        self._found: list[Any] = []
        for value in _reach(sampler):
            if _kind(value) and not any(value is g for g in self._found):
                self._found.append(value)

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._found)

    def state(self, generator: Any) -> Any:
        return _kind(generator)[0](generator)  # type: ignore[index]

    def states(self) -> list[Any]:
        return [self.state(g) for g in self._found]

    def restore(self, states: list[Any]) -> None:
        for g, state in zip(self._found, states):
            _kind(g)[1](g, state)  # type: ignore[index]

    def seed(self) -> int | None:
        """Of the first one of torch's."""
        return next((g.initial_seed() for g in self._found if isinstance(g, torch.Generator)), None)


class Seeded(torch.Generator):
    """torch's generator, which a loader can take along into a process that is spawned: torch hands on a generator's state in shared
    memory that is gone before that process has begun."""

    def __reduce__(self) -> Any:
        return _with_state, (bytes(self.get_state().tolist()),)


def _with_state(state: bytes) -> Seeded:
    generator = Seeded()
    generator.set_state(torch.tensor(list(state), dtype=torch.uint8))
    return generator


def base_seed(generator: torch.Generator) -> None:
    """What a DataLoader draws from its generator at the start of every epoch."""
    torch.empty((), dtype=torch.int64).random_(generator=generator)


def clone(sampler: Any) -> Any:
    """A copy to be run ahead. Raises whatever copying raises: then the sampler can't be foreseen."""
    shared: dict[int, Any] = {}
    for value in _reach(sampler):
        if isinstance(value, torch.utils.data.Dataset) and not _holds_sampler(value):
            shared[id(value)] = value
        elif isinstance(value, types.ModuleType):
            shared[id(value)] = value
        elif isinstance(value, torch.Generator):
            twin = torch.Generator(device=value.device)
            twin.set_state(value.get_state())
            shared[id(value)] = twin
    twin = copy.deepcopy(sampler, shared)
    for value in _reach(twin):
        if hasattr(value, "silent"):
            value.silent = True  # a copy of one of ours follows nothing
    return twin


def bounded(batches: Any) -> Iterator[list[int]]:
    """A copy's batches; an error if there are far more than it should have."""
    try:
        limit = 2 * len(batches) + 16
    except (TypeError, NotImplementedError):
        limit = ENDLESS
    for count, batch in enumerate(batches):
        if count > limit:
            raise Error(f"the sampler goes on after {limit} batches")
        yield batch


@contextlib.contextmanager
def quiet() -> Iterator[Guard]:
    """Restores the global random states in the end; until then the guard tells whether anything drew from them."""
    guard = Guard()
    try:
        yield guard
    finally:
        guard.restore()


class Guard:
    """Global random states as they are now."""

    def __init__(self) -> None:
        self._torch = torch.get_rng_state()
        self._python = random.getstate()
        self._numpy = sys.modules["numpy"].random.get_state() if "numpy" in sys.modules else None

    def drawn(self) -> bool:
        """Whether something drew from them since."""
        return self._torch_drawn() or self.drawn_elsewhere()

    def drawn_elsewhere(self) -> bool:
        """Whether something drew from Python's or numpy's."""
        return self._python != random.getstate() or self._numpy_drawn()

    def restore(self) -> None:
        if self._torch_drawn():
            torch.set_rng_state(self._torch)
        if self._python != random.getstate():
            random.setstate(self._python)
        if self._numpy_drawn():
            sys.modules["numpy"].random.set_state(self._numpy)

    def _torch_drawn(self) -> bool:
        return not torch.equal(self._torch, torch.get_rng_state())

    def _numpy_drawn(self) -> bool:
        if self._numpy is None:
            return False
        now = sys.modules["numpy"].random.get_state()
        return self._numpy[2:] != now[2:] or bool((self._numpy[1] != now[1]).any())


def same(a: list[Any] | None, b: list[Any] | None) -> bool:
    """Whether two lists of states are equal."""
    if a is None or b is None or len(a) != len(b):
        return False
    return all(torch.equal(x, y) if isinstance(x, torch.Tensor) else repr(x) == repr(y) for x, y in zip(a, b))


def _kind(value: Any) -> tuple[Any, Any] | None:
    """How a generator's state is read and set; None for anything else."""
    if isinstance(value, torch.Generator):
        return torch.Generator.get_state, torch.Generator.set_state
    if isinstance(value, random.Random):
        return random.Random.getstate, random.Random.setstate
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        if isinstance(value, numpy.random.Generator):
            return (lambda g: copy.deepcopy(g.bit_generator.state)), (lambda g, s: setattr(g.bit_generator, "state", s))
        if isinstance(value, numpy.random.RandomState):
            return (lambda g: g.get_state(legacy=False)), (lambda g, s: g.set_state(s))
    return None


def _holds_sampler(dataset: Any) -> bool:
    """Lightning gives its sampler a dataset that is another sampler."""
    return any(isinstance(value, Sampler) for value in vars(dataset).values())


def _reach(root: Any) -> Iterator[Any]:
    """The objects that a sampler consists of: its attributes, and those of samplers among them."""
    seen: set[int] = set()
    todo = [root]
    while todo:
        value = todo.pop(0)
        if id(value) in seen:
            continue
        seen.add(id(value))
        yield value
        if isinstance(value, types.ModuleType) or isinstance(value, torch.utils.data.Dataset) and not _holds_sampler(value):
            continue
        if _kind(value) is None and hasattr(value, "__dict__") and not isinstance(value, type):
            todo += [v for v in vars(value).values() if _interesting(v)]


def _interesting(value: Any) -> bool:
    if isinstance(value, (Sampler, torch.utils.data.Dataset, types.ModuleType)) or _kind(value) is not None:
        return True
    return hasattr(value, "__dict__") and hasattr(value, "__iter__") and not isinstance(value, (torch.Tensor, type))
