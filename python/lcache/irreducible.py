"""Irreducible losses: those of another model, which are subtracted from a training's, so that what can't be learnt does not look important."""

from __future__ import annotations

import math
import os
import zlib
from array import array

from .errors import ArgumentError


class Irreducible:
    """One loss for each sample of the dataset, from a file of little-endian float32."""

    def __init__(self, path: str | os.PathLike[str], samples: int) -> None:
        """ArgumentError for a file that can't be read, has another size, or a number that is not finite."""
        shown = f"importance: irreducible={os.fspath(path)}"
        try:
            with open(path, "rb") as f:
                data = f.read(4 * samples + 1)
        except OSError as e:
            raise ArgumentError(f"{shown}: {e.strerror}") from None
        if len(data) != 4 * samples:
            size = f"{len(data)} bytes" if len(data) < 4 * samples else "more bytes"
            raise ArgumentError(f"{shown} has {size}: {samples} samples are {4 * samples} bytes, a float32 for each")
        self._losses = array("f", data)
        self.name = f"{os.path.basename(path)} (crc {zlib.crc32(data):08x})"  # another file has another name
        if not all(map(math.isfinite, self._losses)):
            raise ArgumentError(f"{shown} has losses that are not finite")

    def subtracted(self, indices: array[int], losses: array[float]) -> array[float]:
        """Losses without their irreducible parts; at least 0."""
        own, known = self._losses, len(self._losses)
        return array("f", (x if i >= known else 0.0 if x < own[i] else x - own[i] for i, x in zip(indices, losses)))
