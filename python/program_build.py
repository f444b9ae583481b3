"""Builds the program lcache, its manual pages and its completions. The build hook of the Python package and scripts/dist use it.

The program is built without C, so that it runs on any Linux of its architecture, and without paths of this machine. Version, commit and date are put into it;
they come from pyproject.toml and git, or from build.json, which an sdist has in place of a repository.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import time
from typing import Any, NamedTuple

HERE = os.path.dirname(os.path.abspath(__file__))

# Go's names of architectures, and those of wheels, deb and OCI images.
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}

COMPLETIONS = {
    "bash": "share/bash-completion/completions/lcache",
    "zsh": "share/zsh/site-functions/_lcache",
    "fish": "share/fish/vendor_completions.d/lcache.fish",
}


class Facts(NamedTuple):
    """What a build is made from. commit is empty if nobody knows it."""

    version: str
    commit: str  # the full hash, with -dirty if files were changed
    time: int  # of the commit, in seconds since 1970

    @property
    def date(self) -> str:
        return time.strftime("%Y-%m-%d", time.gmtime(self.time)) if self.commit else ""


def sources() -> str | None:
    """The folder of go.mod: above this one in a repository, beside it in an sdist. None if there is none."""
    for folder in (os.path.dirname(HERE), os.path.join(HERE, "go")):
        if os.path.isdir(os.path.join(folder, "cmd", "lcache")) and os.path.exists(os.path.join(folder, "go.mod")):
            return folder
    return None


def facts() -> Facts:
    with open(os.path.join(HERE, "pyproject.toml"), encoding="utf-8") as f:
        version = next(line.split('"')[1] for line in f if line.startswith("version = "))
    recorded = os.path.join(HERE, "build.json")
    if os.path.exists(recorded):
        with open(recorded, encoding="utf-8") as f:
            found = json.load(f)
        return Facts(version, str(found["commit"]), int(found["time"]))
    try:
        if not os.path.samefile(_git("rev-parse", "--show-toplevel"), os.path.dirname(HERE)):
            return Facts(version, "", 0)  # an sdist in somebody else's repository
        commit, at = _git("show", "-s", "--format=%H %ct", "HEAD").split()
        dirty = "-dirty" if _git("status", "--porcelain", "--untracked-files=no") else ""
    except (OSError, ValueError, subprocess.CalledProcessError):
        return Facts(version, "", 0)
    return Facts(version, commit + dirty, int(at))


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=HERE, capture_output=True, text=True, check=True).stdout.strip()


def go() -> str | None:
    """The path of the go command, or None."""
    return shutil.which(os.environ.get("GO", "go"))


def required_go() -> str:
    """The version of Go that the program needs."""
    folder = sources()
    if folder is None:
        raise failure(f"there are no Go sources next to {HERE}")
    with open(os.path.join(folder, "go.mod"), encoding="utf-8") as f:
        return next(line.split()[1] for line in f if line.startswith("go "))


def failure(why: str) -> SystemExit:
    """The error that ends a build without a program."""
    return SystemExit(
        f"lcache needs Go {required_go()} or newer to build its program, and {why}. Install Go (https://go.dev/dl), or set LCACHE_CLIENT_ONLY=1"
        " to install the Python client alone, for a program that is on PATH already."
    )


def require() -> None:
    """Ends the build at once if the program can't be made."""
    if sources() is None:
        raise SystemExit(f"build lcache: there are no Go sources next to {HERE}: install lcache from its repository, or set LCACHE_CLIENT_ONLY=1")
    if go() is None:
        raise failure("go is not on PATH")


def architecture() -> str:
    """Go's name of the architecture to build for: $GOARCH, or this machine's."""
    machine = platform.machine()
    return os.environ.get("GOARCH") or {wheel: name for name, wheel in ARCHITECTURES.items()}.get(machine, machine)


def environment(arch: str) -> dict[str, str]:
    """The environment of a go command that builds the program. Settings of this machine that change the program are taken out."""
    kept = {k: v for k, v in os.environ.items() if k not in ("GOAMD64", "GOARM64", "GOEXPERIMENT", "GOFIPS140", "GODEBUG", "GOFLAGS", "GOWORK")}
    return {**kept, "CGO_ENABLED": "0", "GOOS": "linux", "GOARCH": arch, "GOFLAGS": "-buildvcs=false -trimpath", "GOWORK": "off"}


def build(to: str, arch: str, of: Facts) -> None:
    """Builds the program for an architecture as the file `to`."""
    os.makedirs(os.path.dirname(to), exist_ok=True)
    command = [str(go()), "build", "-ldflags", ldflags(of), "-o", to, "./cmd/lcache"]
    built = subprocess.run(command, cwd=sources(), env=environment(arch), check=False)
    if built.returncode != 0:
        raise failure(_failed_build())
    os.chmod(to, 0o755)


def ldflags(of: Facts) -> str:
    """The linker's flags: without what only a debugger reads, and with what --version prints."""
    return f"-s -w -buildid= -X main.version={of.version} -X main.commit={of.commit} -X main.date={of.date}"


def _failed_build() -> str:
    """Why a build failed. Go before 1.21 can't read this go.mod. A later one fetches the required version, and fails without a network."""
    local = {**os.environ, "GOTOOLCHAIN": "local"}
    has = subprocess.run([str(go()), "env", "GOVERSION"], cwd="/", env=local, capture_output=True, text=True, check=False).stdout.strip()
    numbers = [[int(part) for part in re.findall(r"\d+", version)[:2]] for version in (has, required_go())]
    return f"{go()} is {has} and could not fetch a newer one" if numbers[0] < numbers[1] else f"{go()} could not build it"


def texts(program: str, to: str) -> dict[str, str]:
    """Has a program of this machine write its manual pages and completions below `to`. Returns path in `to` → path below a prefix such as /usr."""
    manual = os.path.join(to, "man1")
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LCACHE_")}
    subprocess.run([program, "manual", manual], env=clean, check=True)
    made = {os.path.join(manual, name): f"share/man/man1/{name}" for name in sorted(os.listdir(manual))}
    for shell, place in COMPLETIONS.items():
        path = os.path.join(to, f"completion.{shell}")
        with open(path, "wb") as f:
            subprocess.run([program, "completion", shell], env=clean, stdout=f, check=True)
        made[path] = place
    return made


def go_files() -> list[str]:
    """The files that the program is built from, for any architecture, relative to the folder of go.mod."""
    folder = str(sources())
    command = [str(go()), "list", "-deps", "-json", "./cmd/lcache"]
    rest = subprocess.run(command, cwd=folder, env=environment("amd64"), capture_output=True, text=True, check=True).stdout
    found, decoder = ["go.mod", "go.sum"], json.JSONDecoder()
    while rest.strip():
        package, end = decoder.raw_decode(rest.lstrip())
        rest = rest.lstrip()[end:]
        if package.get("Module", {}).get("Main"):
            names: list[Any] = [package.get(kind, []) for kind in ("GoFiles", "IgnoredGoFiles", "SFiles", "IgnoredOtherFiles", "HFiles", "EmbedFiles")]
            inside = os.path.relpath(package["Dir"], folder)
            found += [os.path.join(inside, name) for kind in names for name in kind if not name.endswith("_test.go")]
            # Copied files have their licence beside them.
            licences = {os.path.join(inside, os.path.dirname(name), "LICENSE") for name in package.get("EmbedFiles", [])}
            found += [path for path in licences if os.path.exists(os.path.join(folder, path))]
    return sorted(set(found))
