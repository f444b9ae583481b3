"""The number of each epoch that a batch sampler begins: counted here, set by the program, or stored in the sampler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import ranks

AHEAD = 2  # epochs predicted beyond the one that begins: the one written while it is read, and the one after that


class EpochNumbers:
    """The numbers of one batch sampler's epochs. `subject` returns the sampler; None if it is gone."""

    def __init__(self, subject: Callable[[], Any]) -> None:
        self._subject = subject
        self.current = -1  # the current epoch, or the last one; -1 before the first
        self.complete = False  # the current epoch was read to its end
        self.named: int | None = None  # the epoch given to set(), until it begins
        self.stuck = False  # the sampler's own epoch number stayed the same
        self._holder_epoch: int | None = None  # the sampler's own epoch number when the current epoch began

    def set(self, epoch: int) -> None:
        """Sets the number of the next epoch, here and in the sampler that stores it."""
        self.named = epoch
        holder = ranks.epoch_holder(self._subject())
        if holder is not None:
            holder.set_epoch(epoch)

    @property
    def next(self) -> int:
        """The epoch that begins next."""
        holder = ranks.epoch_holder(self._subject())
        if self.named is not None:
            return self.named
        if holder is not None and (self.current < 0 or holder.epoch != self._holder_epoch):
            return int(holder.epoch)
        return self.current + 1

    def begin(self, once: Callable[..., None]) -> int:
        """Begins the next epoch, and returns its number. Logs a warning by once if the sampler's number should have changed and did not."""
        number, holder = self.next, ranks.epoch_holder(self._subject())
        if holder is not None:
            self.stuck = self.current >= 0 and self.named is None and holder.epoch == self._holder_epoch
            if self.stuck and self.complete and getattr(holder, "shuffle", True):
                once(
                    "stuck",
                    f"the epoch of {type(holder).__name__} is still {holder.epoch}, so this epoch has the order of the last one: "
                    "call set_epoch(epoch) before each epoch",
                )
            self._holder_epoch = holder.epoch
        self.named, self.current, self.complete = None, number, False
        return number

    def of_sampler(self, epoch: int) -> int:
        """The sampler's own number of an epoch."""
        if self.current < 0 or self._holder_epoch is None or self.named is not None:
            return epoch
        return self._holder_epoch if self.stuck else self._holder_epoch + epoch - self.current
