"""Messages of a loader that are logged once, however often their cause comes back."""

from __future__ import annotations

import logging

_log = logging.getLogger("lcache")


class LogOnce:
    """Logs one message for each key. One object belongs to one loader."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def __call__(self, key: str, message: str, level: int = logging.WARNING) -> None:
        if key not in self._logged:
            self._logged.add(key)
            _log.log(level, message)
