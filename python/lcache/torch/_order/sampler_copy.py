"""Copies of samplers, which run in advance without any effect on the sampler itself or on a random state.

A copy shares the sampler's datasets, and has its own generators in the same states. It runs between a save and a restore of the global random states.
"""

from __future__ import annotations

import contextlib
import copy
import random
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.utils.data
from torch.utils.data import Sampler

from ...errors import Error
from .frameworks import holds_sampler

MOST = 1 << 24  # the most indices in an epoch of a sampler that may have no end

class Generators:
    """A sampler's own random generators (of torch, Python or numpy), in a fixed order, and their states."""

    def __init__(self, sampler: Any) -> None:
        self._found: list[Any] = []
        for value in _reachable(sampler):
            if _accessors(value) and not any(value is g for g in self._found):
                self._found.append(value)

    @classmethod
    def of(cls, found: list[Any]) -> Generators:
        """Those generators."""
        generators = cls(None)
        generators._found = found
        return generators

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._found)

    def state(self, generator: Any) -> Any:
        accessors = _accessors(generator)
        assert accessors is not None
        return accessors.read(generator)

    def states(self) -> list[Any]:
        return [self.state(g) for g in self._found]

    def restore(self, states: list[Any]) -> None:
        for generator, state in zip(self._found, states):
            accessors = _accessors(generator)
            assert accessors is not None
            accessors.write(generator, state)

    def seed(self) -> int | None:
        """The seed of the first of torch's generators; None without one."""
        for generator in self._found:
            if isinstance(generator, torch.Generator):
                return int(generator.initial_seed())
        return None


class SpawnableGenerator(torch.Generator):
    """torch's generator, pickled by value. torch pickles a generator's state in shared memory, which is freed before a spawned process starts."""

    def __reduce__(self) -> Any:
        return _with_state, (bytes(self.get_state().tolist()),)


def _with_state(state: bytes) -> SpawnableGenerator:
    generator = SpawnableGenerator()
    generator.set_state(torch.tensor(list(state), dtype=torch.uint8))
    return generator


def draw_base_seed(generator: torch.Generator) -> None:
    """Draws from a generator the number that a DataLoader draws for its workers at the start of every epoch."""
    torch.empty((), dtype=torch.int64).random_(generator=generator)


def copy_sampler(sampler: Any) -> Any:
    """A copy to run in advance. Raises any exception of the copying: the sampler then can't be predicted."""
    shared: dict[int, Any] = {}
    for value in _reachable(sampler):
        if isinstance(value, types.ModuleType) or (isinstance(value, torch.utils.data.Dataset) and not holds_sampler(value)):
            shared[id(value)] = value
        elif isinstance(value, torch.Generator):
            twin = torch.Generator(device=value.device)
            twin.set_state(value.get_state())
            shared[id(value)] = twin
    return silence(copy.deepcopy(sampler, shared))


def silence(twin: Any) -> Any:
    """Stops lcache's own batch samplers in a copy from pushing. Returns the copy."""
    for value in _reachable(twin):
        if hasattr(value, "silent"):
            value.silent = True
    return twin


def bounded(batches: Any, most: int | None = None) -> Iterator[Any]:
    """The batches of a copy. Raises EndlessError for many more batches than its length, or for more than `most` indices (without a length: MOST)."""
    try:
        limit = 2 * len(batches) + 16
    except (TypeError, NotImplementedError):
        limit, most = None, MOST
    indices = 0
    for count, batch in enumerate(batches):
        indices += len(batch) if hasattr(batch, "__len__") else 1
        if limit is not None and count > limit:
            raise EndlessError(f"it does not end after {limit} batches, twice its length")
        if most is not None and max(count, indices) > most:
            raise EndlessError(f"an epoch has more than {most} indices")
        yield batch


class EndlessError(Error):
    """A sampler has no end."""


@contextlib.contextmanager
def preserved_random_states() -> Iterator[RandomStates]:
    """Restores the global random states at the end. Until then the yielded object reports whether they have changed."""
    states = RandomStates()
    try:
        yield states
    finally:
        states.restore()


class RandomStates:
    """The global random states of torch, Python and numpy (if it is loaded) at this object's creation."""

    def __init__(self) -> None:
        self._torch = torch.get_rng_state()
        self._python = random.getstate()
        self._numpy = sys.modules["numpy"].random.get_state() if "numpy" in sys.modules else None

    def changed(self) -> bool:
        """Whether a global generator was drawn from since."""
        return self._torch_changed() or self.changed_elsewhere()

    def changed_elsewhere(self) -> bool:
        """Whether Python's or numpy's global generator was drawn from since."""
        return self._python != random.getstate() or self._numpy_changed()

    def restore(self) -> None:
        """Restores the global random states."""
        if self._torch_changed():
            torch.set_rng_state(self._torch)
        if self._python != random.getstate():
            random.setstate(self._python)
        if self._numpy_changed():
            sys.modules["numpy"].random.set_state(self._numpy)

    def _torch_changed(self) -> bool:
        return not torch.equal(self._torch, torch.get_rng_state())

    def _numpy_changed(self) -> bool:
        if self._numpy is None:
            return False
        now = sys.modules["numpy"].random.get_state()
        return self._numpy[2:] != now[2:] or bool((self._numpy[1] != now[1]).any())


def same_states(a: list[Any] | None, b: list[Any] | None) -> bool:
    """Whether two lists of states are equal."""
    if a is None or b is None or len(a) != len(b):
        return False
    return all(torch.equal(x, y) if isinstance(x, torch.Tensor) else repr(x) == repr(y) for x, y in zip(a, b))


class _Accessors(NamedTuple):
    """Functions to read and write the state of a kind of generator."""

    read: Callable[[Any], Any]
    write: Callable[[Any, Any], None]


def _accessors(value: Any) -> _Accessors | None:
    """None if value is not a generator."""
    if isinstance(value, torch.Generator):
        return _Accessors(torch.Generator.get_state, torch.Generator.set_state)
    if isinstance(value, random.Random):
        return _Accessors(random.Random.getstate, random.Random.setstate)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        if isinstance(value, numpy.random.Generator):
            return _Accessors(lambda g: copy.deepcopy(g.bit_generator.state), lambda g, state: setattr(g.bit_generator, "state", state))
        if isinstance(value, numpy.random.RandomState):
            return _Accessors(lambda g: g.get_state(legacy=False), lambda g, state: g.set_state(state))
    return None


def _reachable(root: Any) -> Iterator[Any]:
    """The objects that a sampler consists of: its attributes, and the attributes of the samplers among them."""
    seen: set[int] = set()
    todo = [root]
    while todo:
        value = todo.pop(0)
        if id(value) in seen:
            continue
        seen.add(id(value))
        yield value
        if isinstance(value, types.ModuleType) or (isinstance(value, torch.utils.data.Dataset) and not holds_sampler(value)):
            continue
        if _accessors(value) is None and hasattr(value, "__dict__") and not isinstance(value, type):
            todo += [v for v in vars(value).values() if _is_part(v)]


def _is_part(value: Any) -> bool:
    """Whether an attribute can affect a sampler's order: samplers, datasets, modules, generators, and other iterables."""
    if isinstance(value, (Sampler, torch.utils.data.Dataset, types.ModuleType)) or _accessors(value) is not None:
        return True
    return hasattr(value, "__dict__") and hasattr(value, "__iter__") and not isinstance(value, (torch.Tensor, type))
