"""The samples that one request fetched for a batch. A wrapper or a subclass's own __getitem__ then takes them one by one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from ..job import Job


class Fetched:
    """The fetched items that samples are made from, by the job's index."""

    def __init__(self, job: Job, items: Iterable[tuple[int, Any]] = (), again: bool = False) -> None:
        """items are (index, item). again: an item may be taken any number of times. Otherwise it is taken once, and the program may write to it."""
        self.job = job
        self.others = 0  # the number of requests for samples that are not here
        self.again = again
        self._items: dict[int, list[Any]] = {}
        for index, item in items:
            self._items.setdefault(index, []).append(item)
        self._used: set[int] = set()  # the indices that were taken
        self._asked: set[int] = set()
        self._names: dict[Any, int] | None = None

    def index_of(self, name: str, name_of: Callable[[Any], str | None]) -> int | None:
        """The index of the sample with a name, where name_of(item) is the name of an item."""
        if self._names is None:
            self._names = {name_of(items[0]): index for index, items in self._items.items() if items}
        return self._names.get(name)

    def take(self, index: int) -> Any | None:
        """The item of a sample. None: the sample must be requested alone."""
        self._asked.add(index)
        items = self._items.get(index)
        if not items:
            self.others += 1
            return None
        self._used.add(index)
        return items[0] if self.again else items.pop(0)

    @property
    def all_used(self) -> bool:
        """Whether each sample was taken."""
        return 0 < len(self._used) == len(self._items)

    def only_asked(self, indices: Iterable[int]) -> bool:
        """Whether samples were taken, and only these."""
        return bool(self._asked) and self._asked <= set(indices)

    @property
    def few_used(self) -> bool:
        """Whether less than half of the samples were taken."""
        return 2 * len(self._used) < len(self._items)


class _Thread(threading.local):
    def __init__(self) -> None:
        self.fetched: dict[str, Fetched] = {}  # by the id of an lcache dataset


_thread = _Thread()


def of_thread(dataset_id: str) -> Fetched | None:
    """The fetched samples of the batch that each() makes for a dataset in this thread."""
    return _thread.fetched.get(dataset_id)


def each(dataset_id: str, fetched: Fetched, item: Callable[[Any], Any], indices: Iterable[Any]) -> list[Any]:
    """Returns item(index) for each index. Meanwhile of_thread() returns the fetched samples in this thread."""
    held = _thread.fetched
    try:
        held[dataset_id] = fetched
        return [item(index) for index in indices]
    finally:
        held.pop(dataset_id, None)
