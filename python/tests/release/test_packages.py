"""The archive, the deb and the rpm."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import EPOCH, ROOT, clean, need, need_root, run, train, venv
from machine import Machine

ARCH = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def test_archive(dist, version, data, torch, tmp_path):
    """Unpacked anywhere: program and client find each other, without an installation."""
    name = f"lcache-{version}-linux-{platform.machine()}"
    run("tar", "-xzf", dist / f"{name}.tar.gz", "-C", tmp_path)
    home = tmp_path / name
    python = venv(tmp_path / "venv", torch) / "bin" / "python"
    env = clean(tmp_path / "venv" / "bin", PYTHONPATH=str(home / "share" / "lcache" / "python"), PYTHONDONTWRITEBYTECODE="1")
    assert shutil.which("go", path=env["PATH"]) is None
    assert run(home / "bin" / "lcache", "--version", env=env).startswith(f"lcache {version} (commit ")
    said = train(python, data, tmp_path / "cache", env)
    assert "two epochs" in said and str(home / "bin" / "lcache") in said
    del env["PYTHONPATH"]  # demo finds the client next to the program
    assert "✓ exact" in run(home / "bin" / "lcache", "demo", "--source", data, "--epochs", "2", env=env, cwd=tmp_path)


def test_sums(dist):
    run("sha256sum", "--check", "--quiet", "--strict", "SHA256SUMS", cwd=dist)
    assert len((dist / "SHA256SUMS").read_text().splitlines()) == len(list(dist.iterdir())) - 1


def test_manual(dist, version, tmp_path):
    need("mandoc")
    run("tar", "-xzf", dist / f"lcache-{version}-linux-{platform.machine()}.tar.gz", "-C", tmp_path)
    pages = sorted(tmp_path.glob("*/share/man/man1/*.1"))
    assert len(pages) > 15 and run("mandoc", "-Tlint", *pages) == ""


def test_deb_lint(dist):
    need("lintian")
    for deb in dist.glob("*.deb"):
        assert run("lintian", "--fail-on", "error,warning", deb, env=clean()) == ""


def test_rpm_lint(dist):
    need("rpmlint")
    for rpm in dist.glob("*.rpm"):
        assert "0 errors, 0 warnings" in run("rpmlint", "-c", ROOT / "deploy" / "packages" / "rpmlint.toml", rpm, env=clean())


def test_rpm(dist, data, tmp_path):
    """Unpacked: the program runs the demo with the client of the package."""
    need("rpm2cpio", "cpio", "rpm")
    (rpm,) = dist.glob(f"*.{platform.machine()}.rpm")
    run("sh", "-c", f"rpm2cpio {rpm} | cpio -idm --quiet", cwd=tmp_path)
    said = run(tmp_path / "usr" / "bin" / "lcache", "demo", "--source", data, "--epochs", "2", env=clean(), cwd=tmp_path)
    assert "✓ exact" in said
    assert "/usr/share/man/man1/lcache.1.gz" in run("rpm", "-qdp", rpm).split()
    assert "systemd-sysusers" in run("rpm", "-qp", "--scripts", rpm)


def test_deb(dist, version, data, torch, tmp_path):
    """Installed in a copy of this machine: a torch epoch, the unit and the user. Removed: only caches stay, and it says where they are."""
    need_root("to mount")
    need("dpkg", "systemd-analyze")
    (deb,) = dist.glob(f"*_{ARCH}.deb")
    with Machine(tmp_path / "machine") as machine:
        env = {**clean(), "DEBIAN_FRONTEND": "noninteractive"}
        machine.mount(dist, "/mnt")
        machine.run("dpkg", "--install", f"/mnt/{deb.name}", env=env)
        before = machine.changed()
        assert machine.run("lcache", "--version", env=env).startswith(f"lcache {version} (commit ")
        assert machine.run("id", "-un", "lcache", env=env) == "lcache\n"
        machine.run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", "/usr/lib/systemd/system/lcache@.service", env=env)
        assert "/usr/bin/lcache" in before and "/usr/share/man/man1/lcache-run.1.gz" in before
        for place, folder in {"/srv": data.parent, "/opt": tmp_path, str(EPOCH.parent): EPOCH.parent}.items():
            machine.mount(folder, place)
        python = os.path.realpath(sys.executable)
        environment = {**env, "PYTHONPATH": f"/usr/share/lcache/python:{torch}", "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/opt"}
        said = machine.run(python, EPOCH, f"/srv/{data.name}", "/opt/cache", env=environment)
        assert "two epochs" in said and "by /usr/share/lcache/python/lcache/__init__.py and /usr/bin/lcache" in said
        (machine.root / "var/lib/lcache/train").mkdir(parents=True)
        (machine.root / "var/lib/lcache/train/FORMAT").write_text("a cache")
        told = machine.run("dpkg", "--purge", "lcache", env=env, stderr=subprocess.STDOUT)
        assert "stay in /var/lib/lcache" in told and "cache/lcache of their homes" in told
        assert machine.run("id", "-un", "lcache", env=env) == "lcache\n"  # the files would belong to nobody
        machine.run("dpkg", "--install", f"/mnt/{deb.name}", env=env)
        shutil.rmtree(machine.root / "var/lib/lcache")
        told = machine.run("dpkg", "--purge", "lcache", env=env, stderr=subprocess.STDOUT)
        assert "stay in /var/lib/lcache" not in told
        left = [path for path in machine.changed() if "lcache" in path and not path.startswith((str(tmp_path), "/var/log", "/tmp", str(EPOCH.parent)))]
        left = [path for path in left if (machine.root / path[1:]).exists() or (machine.root / path[1:]).is_symlink()]
        assert left == [], left
        assert "lcache" not in (machine.root / "etc/passwd").read_text() + (machine.root / "etc/group").read_text()


def test_reproducible(dist):
    """Two builds of one commit, in two clones in two folders, are byte for byte equal."""
    if "RELEASE_AGAIN" not in os.environ:
        pytest.skip("there is no second build: scripts/release-check makes one")
    again = Path(os.environ["RELEASE_AGAIN"])
    assert again != dist
    made = sorted(path.name for path in again.iterdir() if path.name != "SHA256SUMS")
    assert len(made) >= 8
    assert [name for name in made if (again / name).read_bytes() != (dist / name).read_bytes()] == []
    if os.environ.get("RELEASE_WHOLE"):
        run("diff", "--recursive", "--brief", dist, again)
