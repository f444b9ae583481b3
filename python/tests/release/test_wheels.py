"""Wheels and the sdist, in each layout that pip, uv and pipx make, without Go."""

import json
import os
import platform
import shutil
import struct
import subprocess
import sys
import zipfile

import pytest
from conftest import ROOT, TOOLS, clean, need, run, train


@pytest.fixture(scope="session")
def wheel(dist):
    (found,) = dist.glob(f"*_{platform.machine()}.whl")
    return found


def with_pip(folder, torch):
    """An environment as python -m venv makes it. It sees torch by a .pth file."""
    run(sys.executable, "-m", "venv", folder)
    (site,) = (folder / "lib").glob("python*/site-packages")
    (site / "torch-elsewhere.pth").write_text(f"{torch}\n")
    return folder


def said_program(python, env, cwd):
    return run(python, "-c", "import lcache; print(lcache.program())", env=env, cwd=cwd).strip()


def test_wheel(wheel, version, data, torch, tmp_path):
    """pip install in an empty environment: version, manual, demo, a torch epoch; uninstalling leaves nothing there."""
    env = clean(with_pip(tmp_path / "venv", torch) / "bin")
    python, bin = tmp_path / "venv" / "bin" / "python", tmp_path / "venv" / "bin"
    before = sorted(path for path in (tmp_path / "venv").rglob("*") if "__pycache__" not in path.parts)
    assert shutil.which("go", path=env["PATH"]) is None
    run(python, "-m", "pip", "install", "--quiet", "--no-index", wheel, env=env)
    for command in (["lcache"], [python, "-m", "lcache"]):
        assert run(*command, "--version", env=env, cwd=tmp_path).startswith(f"lcache {version} (commit ")
    assert said_program(python, env, tmp_path) == str(bin / "lcache")
    assert (tmp_path / "venv" / "share" / "man" / "man1" / "lcache-run.1").exists()
    assert "✓ exact" in run("lcache", "demo", "--source", data, "--epochs", "2", env=env, cwd=tmp_path)
    assert "two epochs" in train(python, data, tmp_path / "cache", env)
    run("lcache", "ls", tmp_path / "cache", env=env)
    run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "lcache", env=env)
    left = sorted(path for path in (tmp_path / "venv").rglob("*") if "__pycache__" not in path.parts and not path.is_dir())
    assert left == [path for path in before if not path.is_dir()]


@pytest.mark.parametrize("layout", ["user", "target", "prefix", "uv tool", "pipx"])
def test_layouts(layout, wheel, tmp_path):
    """lcache.program() finds the program, with nothing on PATH."""
    env = clean(HOME=str(tmp_path), PYTHONUSERBASE=str(tmp_path / "base"), PYTHONDONTWRITEBYTECODE="1")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--ignore-installed"]
    where = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    if layout == "user":
        # An environment has no user folder: the Python below it has one.
        python = os.path.realpath(sys.executable)
        run(python, *pip[1:], "--user", "--break-system-packages", wheel, env=env)
        assert said_program(python, env, tmp_path) == str(tmp_path / "base" / "bin" / "lcache")
    elif layout == "target":
        run(*pip, "--target", tmp_path / "target", wheel, env=env)
        assert said_program(sys.executable, {**env, "PYTHONPATH": str(tmp_path / "target")}, tmp_path) == str(tmp_path / "target" / "bin" / "lcache")
    elif layout == "prefix":
        run(*pip, "--prefix", tmp_path / "prefix", wheel, env=env)
        assert said_program(sys.executable, {**env, "PYTHONPATH": str(tmp_path / "prefix" / where)}, tmp_path) == str(tmp_path / "prefix" / "bin" / "lcache")
    elif layout == "pipx":
        folders = {"PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "bin"), "PIPX_MAN_DIR": str(tmp_path / "man"), "USE_EMOJI": "0"}
        run(TOOLS / "pipx", "install", "--quiet", "--python", sys.executable, wheel, env={**env, **folders})
        assert run(tmp_path / "bin" / "lcache", "--version", env=env).startswith("lcache ")
    else:
        uv = os.path.join(os.path.dirname(sys.executable), "uv")
        if not os.path.exists(uv):
            pytest.skip("uv is not installed")
        folders = {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin"), "UV_OFFLINE": "1"}
        run(uv, "tool", "install", "--quiet", "--python", sys.executable, wheel, env={**env, **folders})
        assert run(tmp_path / "bin" / "lcache", "--version", env=env).startswith("lcache ")


def test_metadata(dist, version):
    """twine finds nothing. There is no licence field as long as the owner has chosen none."""
    packages = [*dist.glob("*.whl"), dist / f"lcache-{version}.tar.gz"]
    assert len(packages) == 3
    said = run(TOOLS / "twine", "check", "--strict", *packages, env={**clean(), "NO_COLOR": "1", "TERM": "dumb"})
    assert said.count("PASSED") == 3
    for path in packages[:2]:
        archive = zipfile.ZipFile(path)
        text = archive.read(f"lcache-{version}.dist-info/METADATA").decode()
        assert "\nLicense" not in text and "License ::" not in text and f"\nVersion: {version}\n" in text
        assert archive.getinfo(f"lcache-{version}.data/scripts/lcache").external_attr >> 16 & 0o111 == 0o111


def test_sbom(dist, version):
    """The SBOM of each architecture, which is also in its wheel, is valid CycloneDX, and THIRD_PARTY.md lists each part."""
    check = "import sys; from cyclonedx.validation.json import JsonStrictValidator as V; from cyclonedx.schema import SchemaVersion as S; print(V(S.V1_6).validate_str(sys.stdin.read()))"
    third = (dist / "THIRD_PARTY.md").read_text()
    for machine in ("x86_64", "aarch64"):
        sbom = (dist / f"lcache-{version}-linux-{machine}.cdx.json").read_text()
        assert run(TOOLS / "python", "-c", check, input=sbom).strip() == "None"
        parts = json.loads(sbom)["components"]
        assert len(parts) > 20
        for part in parts:
            assert f"| {part['name'] if part['name'] != 'std' else 'Go standard library'} | {part['version']} |" in third
        (wheel,) = dist.glob(f"*_{machine}.whl")
        assert zipfile.ZipFile(wheel).read(f"lcache-{version}.dist-info/sboms/lcache.cdx.json").decode() == sbom


def test_other_architecture(dist, version, data, tmp_path):
    """The aarch64 wheel's program runs. qemu-user has no io_uring, so that it falls back to pread."""
    if platform.machine() != "x86_64":
        pytest.skip("this machine is not x86_64")
    need("qemu-aarch64")
    (wheel,) = dist.glob("*_aarch64.whl")
    program = tmp_path / "lcache"
    program.write_bytes(zipfile.ZipFile(wheel).read(f"lcache-{version}.data/scripts/lcache"))
    program.chmod(0o755)
    assert struct.unpack_from("<H", program.read_bytes(), 18) == (183,)  # EM_AARCH64
    assert "linux/arm64" in run("qemu-aarch64", program, "--version", env=clean())
    said = run("qemu-aarch64", program, "doctor", "--no-device", "--cache", tmp_path, "--json", env=clean())
    assert json.loads(said)
    run("qemu-aarch64", program, "ingest", "--source", data, "--cache", tmp_path / "cache", "--io", "auto", "--quiet", env=clean())
    serving = subprocess.Popen(
        ["qemu-aarch64", str(program), "serve", "--cache", str(tmp_path / "cache"), "--json"], env=clean(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        said = serving.stdout.readline()
        while not said.endswith("\n}\n"):
            said += serving.stdout.readline()
        socket = json.loads(said)["socket"]
        status = json.loads(run("qemu-aarch64", program, "status", "--socket", socket, "--json", env=clean()))
        document = status["servers"][0] if "servers" in status else status
        assert document["io_engine"] == "pread"
    finally:
        serving.terminate()
        assert serving.wait(60) == 0


@pytest.mark.slow
def test_sdist(dist, version, data, torch, tmp_path):
    """pip install of the sdist where there is no Go: the build gets it from PyPI."""
    env = clean(with_pip(tmp_path / "venv", torch) / "bin")
    assert shutil.which("go", path=env["PATH"]) is None
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", dist / f"lcache-{version}.tar.gz", env=env, timeout=1800)
    assert run("lcache", "--version", env=env).startswith(f"lcache {version} (commit ")
    assert "two epochs" in train(python, data, tmp_path / "cache", env)


def test_sources(dist, version):
    """The sdist has what it needs, and no tests."""
    names = run("tar", "-tzf", dist / f"lcache-{version}.tar.gz").split()
    for name in ("pyproject.toml", "hatch_build.py", "program_build.py", "program_parts.py", "build.json", "README.md", "PKG-INFO", "go/go.mod", "lcache/py.typed"):
        assert f"lcache-{version}/{name}" in names
    assert not [name for name in names if "test" in name.rsplit("/", 1)[-1] and name.endswith(("_test.go", ".hex"))]
    assert (ROOT / "python" / "README.md").exists()
