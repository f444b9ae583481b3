"""Tests of the files that make dist makes. scripts/release-check runs them; elsewhere they are not collected.

RELEASE_DIST is the folder of the files, RELEASE_AGAIN the same made in another clone, RELEASE_TOOLS the folder of the programs of scripts/dist-requirements.txt.
No test sees Go, or lcache from the project.
"""

import os
import platform
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TOOLS = Path(os.environ.get("RELEASE_TOOLS", "/nowhere"))
UV = Path(sys.executable).with_name("uv")
EPOCH = Path(__file__).with_name("epoch.py")

if "RELEASE_DIST" not in os.environ:
    collect_ignore_glob = ["test_*.py"]


def need(*programs):
    """Skips a test whose programs are missing. Root can install them, so that for root it is a failure."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        (pytest.fail if os.getuid() == 0 else pytest.skip)(f"not installed: {', '.join(missing)} (apt)")


def need_root(what):
    if os.getuid() != 0:
        pytest.skip(f"needs root, {what}")


def run(*command, **options):
    """Runs a command, and returns its stdout. Another exit code than 0 fails the test, with all that the command said."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "timeout": 600, "check": False, **options}
    done = subprocess.run([str(word) for word in command], **options)
    assert done.returncode == 0, f"{' '.join(map(str, command))} ended with {done.returncode}\n{done.stdout or ''}{done.stderr or ''}"
    return done.stdout or ""


def clean(*paths, **variables):
    """An environment without Go, the project and settings of lcache. paths come first on PATH."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LCACHE_", "RELEASE_", "PYTHON", "PIP_", "VIRTUAL_ENV", "XDG_", "GO"))}
    folders = [folder for folder in ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin") if not os.path.exists(os.path.join(folder, "go"))]
    return {**kept, "PATH": os.pathsep.join([*map(str, paths), *folders]), "LCACHE_FACTS": "off", "OMP_NUM_THREADS": "1", **variables}


@pytest.fixture(scope="session")
def dist():
    return Path(os.environ["RELEASE_DIST"])


@pytest.fixture(scope="session")
def version(dist):
    (sdist,) = (path for path in dist.glob("lcache-*.tar.gz") if "-linux-" not in path.name)
    return sdist.name[len("lcache-") : -len(".tar.gz")]


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """600 files in three class folders."""
    folder, draw = tmp_path_factory.mktemp("data") / "train", random.Random(0)
    for name in ("cats", "dogs", "owls"):
        (folder / name).mkdir(parents=True)
        for i in range(200):
            (folder / name / f"{i:03}.bin").write_bytes(draw.randbytes(1000 + draw.randrange(4000)))
    return folder


@pytest.fixture(scope="session")
def torch():
    """The folder with torch: of the Python that runs the tests."""
    found = pytest.importorskip("torch")
    return Path(found.__file__).resolve().parents[1]


def venv(folder, torch):
    """An environment of its own, made by uv. It sees torch, and nothing else of this Python, by a .pth file."""
    run(UV, "venv", "--quiet", "--offline", "--python", sys.executable, folder)
    (site,) = (folder / "lib").glob("python*/site-packages")
    (site / "torch-elsewhere.pth").write_text(f"{torch}\n")
    (folder / "bin" / "torchrun").write_text(f"#!{folder}/bin/python\nfrom torch.distributed.run import main\nmain()\n")
    (folder / "bin" / "torchrun").chmod(0o755)
    return folder


@pytest.fixture(scope="session")
def installed(dist, torch, tmp_path_factory):
    """An environment with the wheel and torch."""
    folder = venv(tmp_path_factory.mktemp("installed") / "venv", torch)
    (wheel,) = dist.glob(f"*_{platform.machine()}.whl")
    run(UV, "pip", "install", "--quiet", "--offline", "--no-cache", "--python", folder / "bin" / "python", wheel)
    return folder


def train(python, data, cache, env):
    """Two epochs with torch in the environment env. Returns what they said."""
    return run(python, EPOCH, data, cache, env=env, cwd=cache.parent)


def wait_until(true, seconds, what):
    """Waits for a state of another process that no event tells."""
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, f"{what}: not within {seconds} s"
        time.sleep(0.05)
