"""Lists and dicts of a dataset that refuse edits: lcache delivers the source's samples, so an edit would be ignored."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch

V = TypeVar("V")


class FixedList(list[Any]):
    """A list whose mutating methods raise TypeError. It compares and prints like any list, and its copies are plain lists."""

    __slots__ = ("_refusal",)

    def __init__(self, values: Any, refusal: str) -> None:
        super().__init__(values)
        self._refusal = refusal

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError(self._refusal)

    append = clear = extend = insert = pop = remove = reverse = sort = _refuse
    __delitem__ = __iadd__ = __imul__ = __setitem__ = _refuse

    def __copy__(self) -> list[Any]:
        return list(self)

    def __deepcopy__(self, memo: Any) -> list[Any]:
        return copy.deepcopy(list(self), memo)

    def __reduce_ex__(self, _: Any) -> Any:
        return list, (tuple(self),)


class FixedDict(dict[Any, Any]):
    """A dict whose mutating methods raise TypeError. It compares and prints like any dict, and its copies are plain dicts."""

    __slots__ = ("_refusal",)

    def __init__(self, values: Any, refusal: str) -> None:
        super().__init__(values)
        self._refusal = refusal

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError(self._refusal)

    clear = pop = popitem = setdefault = update = _refuse
    __delitem__ = __ior__ = __setitem__ = _refuse

    def __copy__(self) -> dict[Any, Any]:
        return dict(self)

    def __deepcopy__(self, memo: Any) -> dict[Any, Any]:
        return copy.deepcopy(dict(self), memo)

    def __reduce_ex__(self, _: Any) -> Any:
        return OrderedDict, (), None, None, iter(self.items())  # torch.load accepts OrderedDict in any process


if hasattr(torch.serialization, "add_safe_globals"):
    torch.serialization.add_safe_globals([list])  # the pickle of a FixedList calls list, and a checkpoint may contain one


class Fixed(Generic[V]):
    """A property that is made at the first use, kept, and can't be set or edited."""

    def __init__(self, make: Callable[[Any], V], advice: str) -> None:
        self._make, self._advice = make, advice
        self.__doc__ = make.__doc__

    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    def __get__(self, dataset: Any, kind: Any = None) -> V:
        if dataset is None:
            return self  # type: ignore[return-value]
        kept = dataset.__dict__.setdefault(KEPT, {})
        if self._name not in kept:
            made: Any = self._make(dataset)
            if not isinstance(made, (FixedDict, FixedList)):
                fixed = FixedDict if isinstance(made, dict) else FixedList
                made = fixed(made, f"{type(dataset).__name__}.{self._name} can't be edited: {self._advice}")
            kept[self._name] = made
        found: V = kept[self._name]
        return found

    def __set__(self, dataset: Any, _: Any) -> None:
        raise AttributeError(f"{type(dataset).__name__}.{self._name} can't be set: {self._advice}")

    def __delete__(self, dataset: Any) -> None:
        self.__set__(dataset, None)


KEPT = "_fixed"  # the attribute of a dataset that holds its lists and dicts; copies make them again


def fixed(advice: str) -> Callable[[Callable[[Any], V]], Fixed[V]]:
    """Decorates a method that makes a list or a dict. advice: the alternative to an edit, for the error."""
    return lambda make: Fixed(make, advice)
