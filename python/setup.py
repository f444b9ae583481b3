"""Puts the lcache program into the wheel, as a script, so that it is on PATH beside python.

The program is built from the Go sources next to this folder, without C, so that it runs on any Linux of this machine's kind; an sdist carries
it ready. Without both there is no wheel, unless LCACHE_CLIENT_ONLY=1 asks for one without the program: then lcache has to be on PATH already.
"""

import atexit
import os
import platform
import re
import shutil
import subprocess
import tempfile

from setuptools import setup
from setuptools.command.sdist import sdist

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70
    from wheel.bdist_wheel import bdist_wheel
from setuptools.command.build import build
from setuptools.dist import Distribution

try:
    from distutils.command.build_scripts import build_scripts
except ImportError:
    from setuptools._distutils.command.build_scripts import build_scripts

HERE = os.path.dirname(os.path.abspath(__file__))
READY = os.path.join(HERE, "prebuilt", "lcache")
SOURCES = os.path.join(os.path.dirname(HERE), "cmd", "lcache")
GO = shutil.which(os.environ.get("GO", "go"))
HAS_PROGRAM = os.environ.get("LCACHE_CLIENT_ONLY", "") in ("", "0")


def wanted():
    """The version of Go that the program needs."""
    with open(os.path.join(os.path.dirname(HERE), "go.mod")) as f:
        return next(line.split()[1] for line in f if line.startswith("go "))


def failure(why):
    """An error in place of a package without its program."""
    return SystemExit(f"lcache needs Go {wanted()} or newer to build its program, and {why}. Install Go (https://go.dev/dl), or set LCACHE_CLIENT_ONLY=1"
                      " to install the Python client alone, for a program that is on PATH already.")


def check():
    """Ends the build at once if there will be no program."""
    if not HAS_PROGRAM or os.path.exists(READY):
        return
    if not os.path.isdir(SOURCES):
        raise SystemExit(f"there is neither a program in {READY} nor its sources beside {HERE}: install lcache from its repository, or set LCACHE_CLIENT_ONLY=1")
    if GO is None:
        raise failure("there is no go on PATH")


def too_old():
    """Why a build failed, if that is Go's version: one before 1.21 can't read this go.mod, and a later one may not be able to fetch the one that it needs."""
    local = {**os.environ, "GOTOOLCHAIN": "local"}
    has = subprocess.run([GO, "env", "GOVERSION"], cwd="/", env=local, capture_output=True, text=True, check=False).stdout.strip()
    numbers = [[int(part) for part in re.findall(r"\d+", version)[:2]] for version in (has, wanted())]
    return f"{GO} is {has} and could not fetch a newer one" if numbers[0] < numbers[1] else f"{GO} could not build it"


def program(to, version):
    to = os.path.abspath(to)
    os.makedirs(os.path.dirname(to), exist_ok=True)
    if os.path.exists(READY):
        shutil.copy(READY, to)
    else:
        command = [GO, "build", "-trimpath", "-ldflags", f"-s -w -X main.version={version}", "-o", to, "./cmd/lcache"]
        built = subprocess.run(command, cwd=os.path.dirname(HERE), env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}, check=False)
        if built.returncode != 0:
            raise failure(too_old())
    os.chmod(to, 0o755)


class Scripts(build_scripts):
    """Not a text whose first line is adapted, but a program."""

    def run(self):
        program(os.path.join(self.build_dir, "lcache"), self.distribution.get_version())


class Wheel(bdist_wheel):
    """Any Python 3, and the machine that the program is for."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = not HAS_PROGRAM

    def get_tag(self):
        if not HAS_PROGRAM:
            return super().get_tag()
        return "py3", "none", f"manylinux2014_{platform.machine()}"


class Source(sdist):
    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        if HAS_PROGRAM:
            program(os.path.join(base_dir, "prebuilt", "lcache"), self.distribution.get_version())


class Program(Distribution):
    """Packages go where the machine's own go, as a wheel for one kind of machine has it."""

    def has_ext_modules(self):
        return HAS_PROGRAM

    def has_scripts(self):
        return HAS_PROGRAM


if __name__ == "__main__":
    check()
    scratch = tempfile.mkdtemp()  # instead of a build folder beside the sources, where old files would stay in new wheels
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    setup(
        distclass=Program,
        scripts=["lcache"] if HAS_PROGRAM else [],
        cmdclass={"build": build, "build_scripts": Scripts, "bdist_wheel": Wheel, "sdist": Source},
        options={"build": {"build_base": scratch}},
    )
