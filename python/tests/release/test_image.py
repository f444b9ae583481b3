"""The OCI image: its contents, and a torch epoch of a client outside of a container of it."""

import json
import os
import platform
import subprocess
from pathlib import Path

import pytest
from conftest import clean, need, need_root, run, train, wait_until

ARCH = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


@pytest.fixture(scope="module")
def image(dist, version, tmp_path_factory):
    """The layout of the image of this architecture, and its version."""
    need("skopeo")
    folder = tmp_path_factory.mktemp("oci")
    run("tar", "-xf", dist / f"lcache-{version}-oci.tar", "-C", folder)
    return folder, version


def test_inspect(image):
    layout, version = image
    for arch in ("amd64", "arm64"):
        said = json.loads(run("skopeo", "--override-arch", arch, "inspect", "--config", f"oci:{layout}:{version}"))
        assert said["architecture"] == arch and said["os"] == "linux"
        config = said["config"]
        assert config["Entrypoint"] == ["/usr/bin/lcache"] and config["User"] == "65532:65532"
        assert config["Labels"]["org.opencontainers.image.version"] == version
        assert len(json.loads(run("skopeo", "--override-arch", arch, "inspect", f"oci:{layout}:{version}"))["Layers"]) == 1


def test_serves_outside(image, data, installed, tmp_path):
    """The image serves the files to a training outside of it, over a shared folder with the socket. It sees the clients' processes, and runs as their user.

    bwrap starts it, because crun refuses machines whose cgroups are half of version 1.
    """
    need_root("to unpack the owners of an image")
    need("umoci", "bwrap", "ss")
    layout, version = image
    run("skopeo", "--override-arch", ARCH, "copy", "--quiet", f"oci:{layout}:{version}", f"oci:{tmp_path}/one:{version}")
    bundle, cache = tmp_path / "bundle", tmp_path / "cache"
    run("umoci", "unpack", "--image", f"{tmp_path}/one:{version}", bundle)
    root = bundle / "rootfs"
    assert sorted(os.listdir(root)) == ["etc", "run", "tmp", "usr", "var"]
    cache.mkdir()
    settings = json.loads((bundle / "config.json").read_text())["process"]

    def contain(*arguments):
        command = ["bwrap", "--bind", root, "/", "--proc", "/proc", "--dev", "/dev", "--ro-bind", data, data, "--bind", cache, cache]
        command += ["--unshare-ipc", "--unshare-uts", "--cap-drop", "ALL", "--die-with-parent", "--clearenv", "--chdir", settings["cwd"]]
        for variable in settings["env"]:
            command += ["--setenv", *variable.split("=", 1)]
        return [str(word) for word in [*command, "--setenv", "LCACHE_FACTS", "off", "--", settings["args"][0], *arguments]]

    run(*contain("ingest", "--source", data, "--cache", cache, "--no-prefill", "--quiet"))
    errors = tmp_path / "errors"
    with errors.open("w") as log:
        serving = subprocess.Popen(contain("serve", "--cache", cache), stdout=log, stderr=log)
    try:
        socket = cache / "lcache.sock"
        wait_until(lambda: socket.exists() or serving.poll() is not None, 60, "the server's socket")
        assert serving.poll() is None, errors.read_text()
        assert "lcache:x:65532" in Path(f"/proc/{pid_of(socket)}/root/etc/passwd").read_text()  # it has the image's root
        env = clean(installed / "bin", LCACHE_SOCKET=str(socket), LCACHE_BIN="/nowhere/lcache")
        assert "two epochs" in train(installed / "bin" / "python", data, cache, env)
    finally:
        serving.terminate()
        serving.wait(60)


def pid_of(socket):
    """The process that listens at a socket."""
    (line,) = [line for line in run("ss", "-xlpH").splitlines() if f" {socket} " in line]
    return int(line.split("pid=")[1].split(",")[0])
