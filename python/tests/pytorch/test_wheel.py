"""pip install ./python installs the client and the program, and so does the sdist."""

import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest
import realserver

import lcache

PYTHON = os.path.join(realserver.ROOT, "python")
VERSION = lcache.__version__
DATA = f"lcache-{VERSION}.data/"
COMPLETIONS = ("share/bash-completion/completions/lcache", "share/zsh/site-functions/_lcache", "share/fish/vendor_completions.d/lcache.fish")
pytestmark = pytest.mark.xdist_group("wheel")  # one after the other, because each checks the folder for files of a build


def pip(*arguments):
    done = subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def tag():
    return "py3-none-" + ".".join(f"{kind}_{platform.machine()}" for kind in ("manylinux_2_17", "manylinux2014", "musllinux_1_1"))


def check(wheel, target):
    """The wheel has client, program, manual, completions, SBOM and tag. Once installed, the client finds the program, and both have one version."""
    assert os.path.basename(wheel) == f"lcache-{VERSION}-{tag()}.whl"
    archive = zipfile.ZipFile(wheel)
    for name in ("lcache/__init__.py", "lcache/py.typed", "lcache/torch/__init__.py", DATA + "scripts/lcache", DATA + "data/share/man/man1/lcache-run.1",
                 *(DATA + "data/" + place for place in COMPLETIONS)):
        assert archive.getinfo(name).file_size > 0 or name.endswith("py.typed")
    sbom = json.loads(archive.read(f"lcache-{VERSION}.dist-info/sboms/lcache.cdx.json"))
    parts = {part["name"]: part for part in sbom["components"]}
    assert parts["github.com/spf13/cobra"]["licenses"] == [{"license": {"id": "Apache-2.0"}}] and "std" in parts
    pip("install", "--no-deps", "--no-index", "--target", target, wheel)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("LCACHE_", "PYTHON"))}
    said = subprocess.run(["lcache", "--version"], capture_output=True, text=True, check=True, env={**clean, "PATH": str(target / "bin")}).stdout
    assert said.startswith(f"lcache {VERSION} (")
    code = "import sys, lcache; assert 'torch' not in sys.modules; print(lcache.__version__, lcache.program(), lcache.__file__)"
    where = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=target, env=clean).stdout
    assert where.split() == [VERSION, str(target / "bin" / "lcache"), str(target / "lcache" / "__init__.py")]


@pytest.fixture(autouse=True)
def needed():
    if shutil.which("go") is None:
        pytest.skip("Go is not installed")
    pytest.importorskip("hatchling", reason="hatchling is not installed: pip would have to fetch it")


def test_wheel(tmp_path):
    before = set(os.listdir(PYTHON))
    pip("wheel", PYTHON, "--no-deps", "--no-build-isolation", "-w", tmp_path)
    assert {name for name in set(os.listdir(PYTHON)) - before if not name.endswith((".egg-info", "__pycache__"))} == set()
    (wheel,) = tmp_path.glob("*.whl")
    check(wheel, tmp_path / "installed")


def test_sdist(tmp_path):
    """An sdist with all Go sources, and a wheel made from it outside of the repository."""
    code = f"import os, hatchling.build; os.chdir({PYTHON!r}); print(hatchling.build.build_sdist({str(tmp_path)!r}))"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
    (sdist,) = tmp_path.glob("*.tar.gz")
    assert sdist.name == f"lcache-{VERSION}.tar.gz"
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
    assert f"lcache-{VERSION}/go/cmd/lcache/main.go" in names and not [name for name in names if name.endswith("_test.go") or "/tests/" in name]
    pip("wheel", sdist, "--no-deps", "--no-build-isolation", "-w", tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
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
    assert wheels == [f"lcache-{VERSION}-py3-none-any.whl"]
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


def test_version():
    """pyproject.toml and the package have one version, which also reaches the program."""
    with open(os.path.join(PYTHON, "pyproject.toml")) as f:
        assert f'version = "{VERSION}"\n' in f.read()


def test_module():
    """python -m lcache is the program, with its arguments and exit code."""
    env = {**os.environ, "PYTHONPATH": PYTHON, "LCACHE_BIN": shutil.which("true")}
    assert subprocess.run([sys.executable, "-m", "lcache", "--version"], env=env, check=False).returncode == 0
    assert subprocess.run([sys.executable, "-m", "lcache"], env={**env, "LCACHE_BIN": shutil.which("false")}, check=False).returncode == 1
    gone = subprocess.run([sys.executable, "-m", "lcache"], env={**env, "LCACHE_BIN": "/nowhere/lcache"}, capture_output=True, text=True, check=False)
    assert gone.returncode == 1 and gone.stderr == "lcache: start /nowhere/lcache: No such file or directory; set LCACHE_BIN to the lcache program\n"
