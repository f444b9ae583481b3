"""The names of a process's loaders in messages: the last parts of their source's path, just enough to distinguish them."""

from __future__ import annotations

import re
import weakref

from ..._client.schemes import scheme, without_scheme
from ...errors import Error
from .loader_job import LoaderJob
from .wrappers import Translation

_translations: weakref.WeakKeyDictionary[LoaderJob, Translation] = weakref.WeakKeyDictionary()  # of this process's loaders


def note_loader(job: LoaderJob, translation: Translation) -> None:
    """Records the datasets of a loader, so that loaders of other datasets get different names."""
    _translations[job] = translation


def loop_name(job: LoaderJob) -> str:
    """The name of a loader's datasets; "": unknown. Several loaders over the same datasets also have a number."""
    sources = {other: _sources(translation) for other, translation in list(_translations.items())}
    own = sources.get(job)
    if not own:
        return ""
    every = {source for some in sources.values() for source in some}
    name = "+".join(short_name(source, every) for source in own[:3]) + (f" and {len(own) - 3} more" if len(own) > 3 else "")
    alike = [other for other, some in sources.items() if some == own and (other.begun or other is job)]
    return name if len(alike) < 2 else f"{name} (loader {alike.index(job) + 1})"


def _sources(translation: Translation) -> list[str]:
    try:
        return [leaf.job.source for leaf in translation.leaves]
    except Error:
        return []


def short_name(source: str, every: set[str]) -> str:
    """The fewest last parts of a source's path that no other source has."""
    parts, others = _parts(source), [_parts(other) for other in every if other != source]
    for count in range(1, len(parts) + 1):
        if all(other[-count:] != parts[-count:] for other in others):
            return "/".join(parts[-count:])
    return source


def _parts(source: str) -> list[str]:
    """The names in a source's path. For a pattern of shards, the last one is the part before the first brace or star."""
    parts = [part for part in re.sub(r"^([a-z0-9]+:/)?", "", without_scheme(source)).split("/") if part]
    if scheme(source) and parts:
        last = re.split(r"[*?[{]", parts[-1], maxsplit=1)
        if len(last) > 1:
            stem = last[0].rstrip("-_.")
            parts[-1:] = [stem] if stem else []
    return parts or [source]
