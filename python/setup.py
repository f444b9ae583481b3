"""Puts the lcache program into the wheel as a script, so that pip installs it into the folder of the python program.

The program is built from the Go sources next to this folder. It is built without C, so that it runs on any Linux of this machine's architecture. An sdist
contains the built program. Without sources and built program the build fails, unless LCACHE_CLIENT_ONLY=1 asks for a wheel without the program: lcache must
then be on PATH.
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


def required_go():
    """The version of Go that the program needs."""
    with open(os.path.join(os.path.dirname(HERE), "go.mod")) as f:
        return next(line.split()[1] for line in f if line.startswith("go "))


def failure(why):
    """The error that ends a build without a program."""
    return SystemExit(f"lcache needs Go {required_go()} or newer to build its program, and {why}. Install Go (https://go.dev/dl), or set LCACHE_CLIENT_ONLY=1"
                      " to install the Python client alone, for a program that is on PATH already.")


def require_program():
    """Ends the build at once if the program can't be made."""
    if not HAS_PROGRAM or os.path.exists(READY):
        return
    if not os.path.isdir(SOURCES):
        missing = f"there is neither a program in {READY} nor its sources next to {HERE}"
        raise SystemExit(f"build lcache: {missing}: install lcache from its repository, or set LCACHE_CLIENT_ONLY=1")
    if GO is None:
        raise failure("go is not on PATH")


def failed_build():
    """Why a build failed. Go before 1.21 can't read this go.mod. A later one fetches the required version, and fails without a network."""
    local = {**os.environ, "GOTOOLCHAIN": "local"}
    has = subprocess.run([GO, "env", "GOVERSION"], cwd="/", env=local, capture_output=True, text=True, check=False).stdout.strip()
    numbers = [[int(part) for part in re.findall(r"\d+", version)[:2]] for version in (has, required_go())]
    return f"{GO} is {has} and could not fetch a newer one" if numbers[0] < numbers[1] else f"{GO} could not build it"


def make_program(to, version):
    """Builds the program, or copies the built one, to the path `to`."""
    to = os.path.abspath(to)
    os.makedirs(os.path.dirname(to), exist_ok=True)
    if os.path.exists(READY):
        shutil.copy(READY, to)
    else:
        command = [GO, "build", "-trimpath", "-ldflags", f"-s -w -X main.version={version}", "-o", to, "./cmd/lcache"]
        built = subprocess.run(command, cwd=os.path.dirname(HERE), env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}, check=False)
        if built.returncode != 0:
            raise failure(failed_build())
    os.chmod(to, 0o755)


class Scripts(build_scripts):
    """Makes the program. setuptools would instead edit the first line of a text file."""

    def run(self):
        make_program(os.path.join(self.build_dir, "lcache"), self.distribution.get_version())


class Wheel(bdist_wheel):
    """The wheel is for any Python 3, and for the machine architecture of the program."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = not HAS_PROGRAM

    def get_tag(self):
        if not HAS_PROGRAM:
            return super().get_tag()
        return "py3", "none", f"manylinux2014_{platform.machine()}"


class Source(sdist):
    """The sdist contains the built program."""

    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        if HAS_PROGRAM:
            make_program(os.path.join(base_dir, "prebuilt", "lcache"), self.distribution.get_version())


class Program(Distribution):
    """Declares a wheel for one machine architecture."""

    def has_ext_modules(self):
        return HAS_PROGRAM

    def has_scripts(self):
        return HAS_PROGRAM


if __name__ == "__main__":
    require_program()
    scratch = tempfile.mkdtemp()  # a build folder next to the sources would keep old files for new wheels
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    setup(
        distclass=Program,
        scripts=["lcache"] if HAS_PROGRAM else [],
        cmdclass={"build": build, "build_scripts": Scripts, "bdist_wheel": Wheel, "sdist": Source},
        options={"build": {"build_base": scratch}},
    )
