"""The argument s3= of lcache.open: the endpoint of a bucket and how to access it. It has no secrets: credentials come from where the AWS tools find them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from ..errors import ArgumentError
from .schemes import without_scheme

# The settings that s3= may have: texts, and booleans.
TEXTS = ("endpoint_url", "region", "profile")
SWITCHES = ("path_style", "unsigned", "requester_pays")


def endpoint(source: str, s3: Mapping[str, Any] | None) -> str:
    """The endpoint of a source's bucket: from s3=, else from the environment, as `lcache ingest` finds it. "": AWS, or the source is not a bucket."""
    if not without_scheme(source).startswith("s3://"):
        return ""
    given = str((s3 or {}).get("endpoint_url") or "")
    if not given and os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() not in ("1", "t", "true"):
        given = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    return plain_endpoint(given)


def plain_endpoint(url: str) -> str:
    """The normal form of an endpoint: host in lower case, without the scheme's default port, without a slash at the end."""
    url = url.rstrip("/")
    parts = urlsplit(url)
    if not parts.netloc:
        return url  # `lcache ingest` reports the error
    host = parts.netloc.lower().removesuffix({"http": ":80", "https": ":443"}.get(parts.scheme, ":")).removesuffix(":")
    return parts._replace(netloc=host).geturl()


def flags(source: str, s3: Mapping[str, Any] | None) -> list[str]:
    """The flags of `lcache ingest` for s3=, without the endpoint. Raises ArgumentError for an unknown setting."""
    for name, value in (s3 or {}).items():
        if name not in TEXTS and name not in SWITCHES:
            raise ArgumentError(f"s3={{{name!r}: …}}: unknown setting: give {', '.join(TEXTS + SWITCHES)}")
        if value is not None and not isinstance(value, str if name in TEXTS else bool):
            raise ArgumentError(f"s3={{{name!r}: {type(value).__name__}}}: give {'a str' if name in TEXTS else 'True or False'}")
    if s3 and not without_scheme(source).startswith("s3://"):
        raise ArgumentError(f"s3= is for a source s3://BUCKET/PREFIX/, not for {source}")
    made = [f"--s3-{name}={value}" for name in TEXTS[1:] if (value := (s3 or {}).get(name))]
    return made + [f"--s3-{name.replace('_', '-')}" for name in SWITCHES if (s3 or {}).get(name)]
