"""What the lcache program says went wrong, as an exception for a Python program: in words of Python, of the class that the error has."""

from __future__ import annotations

import errno
import json
import re

from ..errors import ArgumentError, Error, of_errno, printable, split_code
from . import buckets

# Flags of the program, and the arguments of lcache.open that they come from. Flags without a value stand for True or False.
_VALUES = {
    "budget": "budget", "memory": "memory", "cache": "cache", "batch-size": "batch_size", "world-size": "world_size", "epochs": "epochs", "seed": "seed",
    "recipe": "recipe", "ext": "ext", "group": "group", "labels": "labels", "part": "part",
    "columns": "columns", "dtype": "dtype", "feature": "feature", "key": "key", "label-column": "label_column", "label-feature": "label_feature",
    "label-field": "label_field", "record-bytes": "record_bytes", "shape": "shape",
    "on-error": "on_error", "param": "params", "source": "source", "socket": "socket",
    "cluster": "cluster", "cluster-key": "cluster_key",
}  # fmt: skip
_OF_BUCKETS = {f"s3-{name.replace('_', '-')}": name for name in buckets.TEXTS}  # settings within s3=
_SWITCHES = {
    "flat": "flat=True", "drop-last": "drop_last=True", "stream": "stream=True", "follow-links": "follow_links=True", "no-follow-links": "follow_links=False",
    "allow-empty": "allow_empty=True", "http-allow-other-hosts": "LCACHE_HTTP_ALLOW_OTHER_HOSTS=true in the environment",
    **{f"s3-{name.replace('_', '-')}": f's3={{"{name}": True}}' for name in buckets.SWITCHES},
}  # fmt: skip
_OF_JSON = {"": "…", "true": "True", "false": "False"}  # values of --param

_ERRNO = {"not_found": errno.ENOENT, "permission": errno.EACCES, "not_a_directory": errno.ENOTDIR, "no_space": errno.ENOSPC, "read_only": errno.EROFS}

# A command line within a message stays as it is.
_COMMAND = re.compile(r"\blcache (?:bench|cluster|doctor|ingest|ls|order|rm|run|serve|status|stop|verify)\b[^;]*")
_FLAG = re.compile(r"(?<![\w/-])--([a-z][a-z0-9-]*[a-z])(?:[ =]((?:-\d|[^-\s,;:()])[^\s,;:()]*))?")
_WORD = re.compile(r"\b(and|another|if|in|is|it|of|or|that|they|to|which)\b")
_ADVICE = re.compile(r"\b(?:give|add|use) (?:another )?(?:" + "|".join(_VALUES.values()) + r")=")


def in_python(message: str) -> str:
    """A message of the program with its flags as arguments of lcache.open: --budget 5MiB is budget="5MiB"."""
    parts, at = [], 0
    for command in _COMMAND.finditer(message):
        parts += [_FLAG.sub(_argument, message[at : command.start()]), command[0]]
        at = command.end()
    return "".join([*parts, _FLAG.sub(_argument, message[at:])])


def _argument(flag: re.Match[str]) -> str:
    name, value = flag[1], flag[2]
    rest = "" if value is None else flag[0][flag.start(2) - flag.start(0) - 1 :]  # with the character before it
    if name in _SWITCHES:
        return _SWITCHES[name] + rest
    if name in _OF_BUCKETS:
        setting = f's3={{"{_OF_BUCKETS[name]}": %s}}'
        return setting % "…" + rest if value is None or _WORD.fullmatch(value) else setting % _literal(value)
    if name not in _VALUES:
        return flag[0]
    keyword = _VALUES[name]
    if value is None or _WORD.fullmatch(value):
        return f"{keyword}={rest}"
    if name == "param" and "=" in value:
        key, _, text = value.partition("=")
        return f'params={{"{key}": {_OF_JSON.get(text) or _literal(text)}}}'
    return f"{keyword}={_literal(value)}"


def _literal(value: str) -> str:
    """A flag's value as Python writes it."""
    return value if re.fullmatch(r"-?\d+|[A-Z]|FILE|NAME", value) else f'"{value}"'  # a number, or what stands for a value


def exception(source: str, written: str, wrong_usage: bool = False) -> Error:
    """The exception of a program that ended with an error. written is all that it wrote to stderr."""
    lines = [line for line in written.strip().splitlines() if not line.startswith("default ")]
    kind = "usage" if wrong_usage else ""
    for line in lines:
        kind = _kind(line) or kind
    said = [line for line in lines if not line.startswith("{")]
    message = re.sub(r"^lcache [a-z]+: ", "", said[-1]) if said else "the lcache program ended without a message"
    message, code = split_code(message)
    error = _exception(source, message, kind)
    if code is not None:
        error.code = code
    return error


def _exception(source: str, message: str, kind: str) -> Error:
    text = in_python(message)
    if printable(source) not in text and source not in text:
        text = f"{source}: {text}"
    if not kind and "holds no file" in text:
        kind = "not_found"
    if kind in _ERRNO:
        return of_errno(_ERRNO[kind], text)
    return ArgumentError(text) if kind == "usage" or _ADVICE.search(text) else Error(text)


def _kind(line: str) -> str:
    """The kind of error that a line of JSON names; "" if it is another line."""
    try:
        fields = json.loads(line)
        return str(fields["error"].get("kind", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""
