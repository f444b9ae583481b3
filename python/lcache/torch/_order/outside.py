"""Finds objects of a sampler that reach outside its process: sockets, pipes, files that are open for writing, and objects that processes share.

A forked child has no such files, and must not touch what its parent shares with other processes. So such a sampler never runs in a child. The search follows
the sampler's attributes, the attributes of their values, the variables that its methods close over, and the globals that they name.
"""

from __future__ import annotations

import collections
import functools
import inspect
import io
import itertools
import logging
import os
import socket
import stat
import subprocess
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed
import torch.utils.data

_MOST, _ITEMS = 5000, 64  # the most objects that are searched, and items of each container
_SHARED = ("multiprocessing", "torch.multiprocessing", "torch.distributed", "torch._C._distributed_c10d", "concurrent.futures.process", "asyncio")
_CONTAINERS = (list, tuple, set, frozenset, collections.deque)
_PLAIN = (str, bytes, bytearray, int, float, complex, bool, type(None), range, torch.Tensor, torch.Generator, logging.Logger, logging.Handler)
# The code of these packages is not searched, only the objects of their classes.
_PACKAGES = frozenset(getattr(sys, "stdlib_module_names", ())) | {"torch", "numpy", "lcache", "accelerate", "lightning", "timm", "torchdata", "transformers"}


def reached_outside(sampler: Any) -> str | None:
    """Names the first such object that is found; None: none was found."""
    todo: collections.deque[Any] = collections.deque([sampler])
    seen: set[int] = set()
    kept = []  # so that no id is used twice
    while todo and len(seen) < _MOST:
        value = todo.popleft()
        if id(value) in seen or isinstance(value, _PLAIN):
            continue
        seen.add(id(value))
        kept.append(value)
        found = _outside(value)
        if found is not None:
            return found
        todo.extend(_reached(value))
    return None


def _outside(value: Any) -> str | None:
    module, name = type(value).__module__, type(value).__name__
    if isinstance(value, (socket.socket, subprocess.Popen)):
        return f"a {name}"
    if isinstance(value, io.IOBase):
        return _open_file(value)
    if module.startswith(_SHARED) or module == "_multiprocessing":
        return f"a {module}.{name}"
    return None


def _open_file(file: io.IOBase) -> str | None:
    """Names an open file if it is a pipe, a socket, or open for writing. Standard output is ignored, because a child discards it."""
    try:
        if file.closed:
            return None
        number = file.fileno()
        if number <= 2:
            return None
        mode = os.fstat(number).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            return "a pipe"
        return f"the open file {getattr(file, 'name', number)!r:.100}" if file.writable() else None
    except (OSError, ValueError):
        return None  # it is in memory


def _reached(value: Any) -> Iterable[Any]:
    """The objects that an object holds, or that a function uses."""
    if isinstance(value, _CONTAINERS):
        return list(itertools.islice(value, _ITEMS))
    if isinstance(value, dict):
        return list(itertools.islice(value.values(), _ITEMS))
    if isinstance(value, types.MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, types.FunctionType):
        return list(_used_by(value)) if _is_programs(value.__module__) else ()
    if isinstance(value, types.GeneratorType):
        return list(inspect.getgeneratorlocals(value).values())
    if isinstance(value, (property, functools.cached_property)):
        return [getattr(value, name, None) for name in ("fget", "func")]
    if isinstance(value, (staticmethod, classmethod)):
        return [value.__func__]
    if isinstance(value, type):
        return [v for kind in value.__mro__ if _is_programs(kind.__module__) for v in list(vars(kind).values())]
    if isinstance(value, types.ModuleType) or (type(value).__module__.startswith("lcache.") and not isinstance(value, torch.utils.data.Sampler)):
        return ()
    slots = [v for kind in type(value).__mro__ for v in vars(kind).values() if isinstance(v, types.MemberDescriptorType)]
    return [type(value), *_attributes(value), *(v for v in (_slot(slot, value) for slot in slots) if v is not None)]


def _attributes(value: Any) -> list[Any]:
    try:
        return list(vars(value).values())
    except TypeError:
        return []


def _slot(slot: types.MemberDescriptorType, value: Any) -> Any:
    try:
        return slot.__get__(value)
    except (AttributeError, TypeError):
        return None


def _used_by(function: types.FunctionType) -> Iterator[Any]:
    """The variables that a function closes over, its defaults, and the globals that it names. For a global module: the attributes that it names."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            pass  # the variable has no value yet
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    names = set(_names(function.__code__))
    for name in names & function.__globals__.keys():
        value = function.__globals__[name]
        if isinstance(value, types.ModuleType):
            if _is_programs(value.__name__):
                yield from (vars(value)[attribute] for attribute in names & vars(value).keys())
        else:
            yield value


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _is_programs(module: str | None) -> bool:
    """Whether a module is the program's own, or belongs to an unknown package."""
    return module == "__main__" or (module or "").split(".", 1)[0] not in _PACKAGES
