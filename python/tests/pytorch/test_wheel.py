"""pip install ./python installs the client and the program, and so do the files that `python -m build` makes."""

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest
import realserver

PYTHON = os.path.join(realserver.ROOT, "python")
pytestmark = pytest.mark.xdist_group("wheel")  # one after the other, because each checks the folder for files of a build


def pip(*arguments):
    done = subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def check(wheel, target):
    """The wheel has client, program and tag. Once installed, the program is among the scripts, on PATH in an environment, and runs."""
    assert os.path.basename(wheel) == f"lcache-0.1-py3-none-manylinux2014_{platform.machine()}.whl"
    names = zipfile.ZipFile(wheel).namelist()
    for name in ("lcache/__init__.py", "lcache/py.typed", "lcache/torch/__init__.py", "lcache-0.1.data/scripts/lcache"):
        assert name in names
    pip("install", "--no-deps", "--no-index", "--target", target, wheel)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("LCACHE_", "PYTHON"))}
    said = subprocess.run(["lcache", "--version"], capture_output=True, text=True, check=True, env={**clean, "PATH": str(target / "bin")}).stdout
    assert "0.1" in said
    code = "import sys, lcache; assert 'torch' not in sys.modules; print(lcache.__file__)"
    where = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=target, env=clean).stdout
    assert where.startswith(str(target))


@pytest.fixture(autouse=True)
def needed():
    if shutil.which("go") is None:
        pytest.skip("Go is not installed")
    pytest.importorskip("setuptools", minversion="70", reason="setuptools 70 is not installed: pip would have to fetch it")


def test_wheel(tmp_path):
    before = set(os.listdir(PYTHON))
    pip("wheel", PYTHON, "--no-deps", "--no-build-isolation", "-w", tmp_path)
    assert {name for name in set(os.listdir(PYTHON)) - before if not name.endswith(".egg-info")} == set()
    (wheel,) = tmp_path.glob("*.whl")
    check(wheel, tmp_path / "installed")


def test_build(tmp_path):
    """An sdist that contains the program, and a wheel made from it."""
    env = dict(os.environ)
    if importlib.util.find_spec("build") is None:
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--retries", "0", "--timeout", "10", "--target", tmp_path / "build", "build"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            pytest.skip("build is not installed and can't be: " + done.stderr.strip().splitlines()[-1])
        env["PYTHONPATH"] = str(tmp_path / "build")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path / "dist", PYTHON]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    wheel, sdist = sorted((tmp_path / "dist").iterdir(), key=lambda path: path.suffix != ".whl")
    assert sdist.name == "lcache-0.1.tar.gz"
    with tarfile.open(sdist) as archive:
        assert archive.getmember("lcache-0.1/prebuilt/lcache").mode & 0o111
    check(wheel, tmp_path / "installed")


def without_go():
    """The environment without Go on PATH."""
    folders = os.environ["PATH"].split(os.pathsep)
    return {**os.environ, "PATH": os.pathsep.join(d for d in folders if not os.path.exists(os.path.join(d, "go"))), "GO": "go"}


def attempt(tmp_path, env):
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", PYTHON, "--no-deps", "--no-build-isolation", "-w", tmp_path]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300, env=env)
    return done.returncode, done.stdout + done.stderr, [path.name for path in tmp_path.glob("*.whl")]


def wanted():
    with open(os.path.join(realserver.ROOT, "go.mod")) as f:
        return next(line.split()[1] for line in f if line.startswith("go "))


def test_without_go(tmp_path):
    """A build without the program fails, and makes no wheel."""
    code, said, wheels = attempt(tmp_path, without_go())
    assert code != 0 and not wheels
    assert f"lcache needs Go {wanted()} or newer to build its program, and go is not on PATH" in said and "LCACHE_CLIENT_ONLY=1" in said
    assert "Traceback" not in said


def test_client_only(tmp_path):
    """A wheel without the program, for any machine, with or without Go."""
    code, said, wheels = attempt(tmp_path, {**without_go(), "LCACHE_CLIENT_ONLY": "1"})
    assert code == 0, said
    assert wheels == ["lcache-0.1-py3-none-any.whl"]
    names = zipfile.ZipFile(tmp_path / wheels[0]).namelist()
    assert "lcache/torch/__init__.py" in names and not [name for name in names if "scripts" in name]


@pytest.mark.parametrize("version, said", [("go1.20.3", "is go1.20.3 and could not fetch a newer one"), ("go99.0", "could not build it")])
def test_go_that_can_not_build(tmp_path, version, said):
    go = tmp_path / "go"
    go.write_text(f'#!/bin/sh\ncase "$1" in env) echo {version};; *) echo "go: errors parsing go.mod" >&2; exit 1;; esac\n')
    go.chmod(0o755)
    code, output, wheels = attempt(tmp_path, {**os.environ, "GO": str(go)})
    assert code != 0 and not wheels
    assert f"lcache needs Go {wanted()} or newer to build its program, and {go} {said}" in output and "go: errors parsing go.mod" in output
    assert "Traceback" not in output
