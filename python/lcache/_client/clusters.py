"""The cluster of several machines that a program asks for, and whether a running server is in it."""

from __future__ import annotations

import base64
import hmac
import logging
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..errors import ArgumentError
from .environment import integer

WHERE, KEY = "LCACHE_CLUSTER", "LCACHE_CLUSTER_KEY"

_log = logging.getLogger("lcache")
_LOOKED = "SLURM_STEP_NODELIST, SLURM_JOB_NODELIST, and MASTER_ADDR with WORLD_SIZE above LOCAL_WORLD_SIZE"  # as internal/cluster/auto.go
_OTHER = "LC063"  # the code of a server that is in another cluster, as in the lcache program
_PATHS = (KEY, "LCACHE_TLS_CERT", "LCACHE_TLS_KEY", "LCACHE_TLS_CA")
_SECRET = re.compile(r"[0-9a-fA-F]{64}")


class Cluster(NamedTuple):
    """What a program asks for: where the other machines are, as the flag --cluster takes it, and the file with the key; "": nothing."""

    where: str
    key: str

    @classmethod
    def of(cls, where: str | None, key: str | os.PathLike[str] | None) -> Cluster:
        """The arguments cluster= and cluster_key=; None: the variable of the environment."""
        if where is not None and not isinstance(where, str):
            raise ArgumentError(f'cluster={where!r}: give a text: "auto", "listen", "dns:NAME", or addresses like "node1,10.0.0.2:7746"; "" is no cluster')
        wanted = os.environ.get(WHERE, "") if where is None else where
        file = os.environ.get(KEY, "") if key is None else os.path.expanduser(os.fspath(key))
        if key is not None and not wanted:
            raise ArgumentError(f'cluster_key={os.fspath(key)!r} needs cluster=, or {WHERE} in the environment: give cluster="auto", or other machines')
        return cls(wanted, os.path.abspath(file) if file else "")

    def variables(self) -> tuple[tuple[str, str], ...]:
        """The variables that bring a server of its own into the cluster."""
        return (WHERE, self.where), (KEY, self.key)

    def has_others(self) -> bool:
        """Whether the program asks for other machines. "auto" asks for none if the launcher names only this one."""
        return bool(self.where) and (self.where != "auto" or _spans_machines(os.environ))

    def warn_if_alone(self) -> None:
        """Warns a program that asks for "auto" where the launcher names no other machine, as the server does in its log."""
        if self.where == "auto" and not self.has_others():
            _log.warning("cluster=\"auto\" finds no other machine, so this one goes on alone; it looked at %s", _LOOKED)

    def label(self) -> str | None:
        """The name of the cluster with this key, which is no secret; "" without a key. None: the file can't be read, which only its server can explain."""
        if not self.key:
            return ""
        try:
            with open(self.key) as f:
                text = f.read(1024).strip()
        except (OSError, ValueError):
            return None
        return _label(bytes.fromhex(text)) if _SECRET.fullmatch(text) else None

    def require(self, stats: Mapping[str, Any], pid: int) -> None:
        """Raises ArgumentError if the server with this status document is not in the cluster. The caller has asked has_others."""
        server, advice = stats.get("cluster") or {}, f'start it with --cluster, or stop it with `lcache stop {pid}` and run this again, or give cluster=""'
        if server.get("state", "off") == "off":
            raise ArgumentError(
                f"the server (pid {pid}) that runs already is in no cluster, and the program asks for cluster={self.where!r}: {advice} [{_OTHER}]"
            )
        label = self.label()
        if label is not None and label != server.get("label", ""):
            theirs, ours = "a key" if server.get("label") else "no key", self.key or "no key"
            raise ArgumentError(
                f"the server (pid {pid}) that runs already is in another cluster: it has {theirs}, and the program has {ours}, "
                f"which is not the same: {advice} [{_OTHER}]"
            )


def absolute_paths(env: dict[str, str]) -> dict[str, str]:
    """env with absolute paths of the cluster's files, for a server that runs in another folder."""
    return {name: os.path.abspath(value) if name in _PATHS and value else value for name, value in env.items()}


def _label(secret: bytes) -> str:
    """The label that internal/cluster/key.go derives: HKDF-SHA256 (RFC 5869) without a salt."""
    extracted = hmac.digest(bytes(32), secret, "sha256")
    return "lcache-" + base64.urlsafe_b64encode(hmac.digest(extracted, b"lcache cluster v1 label\x01", "sha256")[:12]).decode().rstrip("=")


def _spans_machines(env: Mapping[str, str]) -> bool:
    """Whether the launcher's variables name several machines, as internal/cluster/auto.go decides."""
    if any(env.get(name) for name in ("SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NODELIST")):
        hosts = env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST") or ""
        if "," in hosts or re.search(r"\[\d+-", hosts):
            return True
    local = integer(env, "LOCAL_WORLD_SIZE") or 0
    return bool(env.get("MASTER_ADDR")) and 0 < local < (integer(env, "WORLD_SIZE") or 0)
