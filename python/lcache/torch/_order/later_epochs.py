"""The epochs after the current one, computed and pushed in a thread while the training loop reads.

The thread draws only from private generators, and reads or sets no global random state. It has no reference to a loader or its OrderAhead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from ..._client.orders import Order
from .computed_epoch import ComputedEpoch, at_state
from .known_samplers import KnownSampler
from .sampler_copy import draw_base_seed

Push = Callable[[int, Order], bool]  # pushes an epoch's order, and returns whether more can be pushed


class Following(NamedTuple):
    """A later epoch."""

    number: int
    sampler_epoch: int  # the sampler's number of the epoch
    generator: torch.Generator | None  # private, at the epoch's beginning; None: the generator continues from the previous epoch, if the sampler has one
    kept: ComputedEpoch | None  # an earlier computation of the epoch, which may have another beginning


class LaterEpochs:
    """One run of the thread. `epochs` and `starts` grow until join() returns."""

    def __init__(self, known: KnownSampler, current: ComputedEpoch, following: Sequence[Following], base_seed: bool, push: Push) -> None:
        """base_seed: the loader draws a base seed from the sampler's generator before each epoch."""
        self.epochs: dict[int, ComputedEpoch] = {}
        self.starts: dict[int, torch.Tensor] = {}  # by epoch, the state of the sampler's generator at its beginning
        self.failure: Exception | None = None
        self._known, self._current, self._following, self._base_seed, self._push = known, current, following, base_seed, push
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="lcache-orders")
        self._thread.start()

    def stop(self) -> None:
        """Makes the thread end after its current epoch."""
        self._stopped = True

    def join(self) -> None:
        """Waits for the end of the thread."""
        self._thread.join()

    def _run(self) -> None:
        try:
            self._compute()
        except Exception as e:  # noqa: BLE001  stored for the training loop, which is another thread
            self.failure = e.with_traceback(None)

    def _compute(self) -> None:
        before = self._current
        for number, sampler_epoch, generator, kept in self._following:
            if self._stopped or not threading.main_thread().is_alive():
                return  # the next epoch has begun, or the program ends
            if generator is None and before.start is not None:
                generator = self._gone_on(before)
                self.starts[number] = generator.get_state()
            fresh = ComputedEpoch(self._known, sampler_epoch, generator)
            before = self.epochs[number] = kept if kept is not None and kept.is_same_as(fresh) else fresh.draw()
            if not self._push(number, before.order):
                return

    def _gone_on(self, before: ComputedEpoch) -> torch.Generator:
        """A generator at the beginning of the epoch after `before`."""
        state = before.finish()
        assert state is not None
        generator = at_state(state)
        if self._base_seed:
            draw_base_seed(generator)
        return generator
