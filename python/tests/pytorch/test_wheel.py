"""pip install ./python brings the client and the program."""

import os
import platform
import shutil
import subprocess
import sys
import zipfile

import pytest
import realserver

PYTHON = os.path.join(realserver.ROOT, "python")


def pip(*arguments):
    done = subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_wheel(tmp_path):
    if shutil.which("go") is None:
        pytest.skip("Go is not installed")
    pytest.importorskip("setuptools", minversion="70", reason="setuptools 70 is not installed: pip would have to fetch it")
    before = set(os.listdir(PYTHON))
    pip("wheel", PYTHON, "--no-deps", "--no-build-isolation", "-w", tmp_path)
    assert {name for name in set(os.listdir(PYTHON)) - before if not name.endswith(".egg-info")} == set()
    (wheel,) = [name for name in os.listdir(tmp_path) if name.endswith(".whl")]
    assert wheel == f"lcache-0.1-py3-none-manylinux2014_{platform.machine()}.whl"
    names = zipfile.ZipFile(tmp_path / wheel).namelist()
    for name in ("lcache/__init__.py", "lcache/py.typed", "lcache/torch/__init__.py", "lcache-0.1.data/scripts/lcache"):
        assert name in names
    target = tmp_path / "installed"
    pip("install", "--no-deps", "--no-index", "--target", target, tmp_path / wheel)
    said = subprocess.run([target / "bin" / "lcache", "--version"], capture_output=True, text=True, check=True).stdout
    assert "0.1" in said
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("LCACHE_", "PYTHON"))}
    code = "import sys, lcache; assert 'torch' not in sys.modules; print(lcache.__file__)"
    where = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=target, env=clean).stdout
    assert where.startswith(str(target))
