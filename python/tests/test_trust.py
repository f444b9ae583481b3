"""Folders and files of a cache, and servers, are refused if another user could have written them."""

import contextlib
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import pytest
from fakeserver import error

import lcache
from lcache._client import cachedirs, connection, embedded, protocol, trust
from lcache._client.cache_lock import Lock
from lcache._client.match import Listing

STRANGER, THIRD = 61001, 61002


@pytest.fixture
def umask():
    """Sets the umask to 0, so that every mode is the one that lcache requests."""
    old = os.umask(0)
    yield
    os.umask(old)


@pytest.fixture
def between():
    """A folder that other users may enter, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="lcache-trust-") as folder:
        os.chmod(folder, 0o755)
        yield folder


@pytest.fixture
def two_users():
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("needs root and setpriv, to be two users")


def mode(path):
    return os.stat(path).st_mode & 0o7777


def put(path, text, mode=0o600):
    with open(path, "w") as f:
        f.write(text)
    os.chmod(path, mode)
    return str(path)


def test_files(tmp_path, umask):
    path = put(tmp_path / "f", "text")
    for ok in (0o600, 0o400, 0o644):
        os.chmod(path, ok)
        os.close(trust.open_file(path, os.O_RDONLY))
    for wrong in (0o620, 0o602, 0o666):
        os.chmod(path, wrong)
        with pytest.raises(lcache.errors.PermissionError, match=f"{path} can be written by other users .mode {wrong:04o}.: run chmod -R go-w {path}, or give another cache="):
            trust.open_file(path, os.O_RDONLY)
    new = str(tmp_path / "new")
    os.close(trust.open_file(new, os.O_RDWR | os.O_CREAT))
    assert mode(new) == 0o600
    os.mkfifo(tmp_path / "pipe")
    os.symlink(path, tmp_path / "link")
    for name in ("pipe", "link"):
        with pytest.raises(OSError):
            trust.open_file(str(tmp_path / name), os.O_RDONLY)  # and must not wait


def test_folders(tmp_path, umask):
    folder = str(tmp_path / "a" / "b" / "c")
    trust.make_folder(folder)
    for made in (folder, os.path.dirname(folder), str(tmp_path / "a")):
        assert mode(made) == 0o700, made
    trust.make_folder(folder)  # again
    trust.require_folder(folder)
    trust.require_folder(folder + "/none")
    for wrong in (0o770, 0o777, 0o1777):
        os.chmod(folder, wrong)
        with pytest.raises(lcache.errors.PermissionError, match="can be written by other users"):
            trust.require_folder(folder)


def test_owners(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root, to give files to another user")
    path = put(tmp_path / "f", "text", 0o644)
    os.chown(path, STRANGER, STRANGER)
    with pytest.raises(lcache.errors.PermissionError, match=f"{path} belongs to user {STRANGER}, and root trusts only what belongs to root: .*chown -R 0 {path}"):
        trust.open_file(path, os.O_RDONLY)


def test_lcache_open_refuses_a_folder_of_all(tmp_path, umask):
    """The folder is refused before anything is made, listed or started."""
    source, cache = tmp_path / "source", tmp_path / "cache"
    os.mkdir(source)
    put(source / "1", "sample")
    home = cachedirs.folders(str(source), str(cache))[0]
    trust.make_folder(home)
    os.chmod(home, 0o777)
    with pytest.raises(lcache.errors.PermissionError, match="run chmod -R go-w"):
        lcache.open(str(source), str(cache), timeout=10)
    assert os.listdir(home) == []


@pytest.mark.parametrize("name", ["open.lock", "serve.log"])
def test_files_of_the_client(tmp_path, name, monkeypatch):
    folder = str(tmp_path / "cache")
    trust.make_folder(folder)
    path = put(os.path.join(folder, name), "", 0o666)
    home = embedded.Home("source", (folder,), (), (), 5.0)
    monkeypatch.setenv("LCACHE_BIN", "/bin/false")
    with pytest.raises(lcache.errors.PermissionError, match=f"{path} can be written by other users"):
        if name == "serve.log":
            embedded._serve(home)
        else:
            Lock.take(path, 5.0)


def test_a_planted_record_does_not_make_a_cache(tmp_path):
    """Any user may put a job.json into a shared root, which does not make it a cache. This user's own job.json does, and the error says what to do."""
    root, named = str(tmp_path / "root"), Listing.of("/data/train")
    os.mkdir(root)
    path = put(os.path.join(root, "job.json"), '{"schema": 1, "source": "/data/train"}', 0o666)
    os.chmod(root, 0o1777)
    assert cachedirs.existing_cache(named, root) is None
    os.chmod(path, 0o600)
    with pytest.raises(lcache.errors.PermissionError, match=f"{root} can be written by other users"):
        cachedirs.existing_cache(named, root)
    os.chmod(root, 0o755)
    assert cachedirs.existing_cache(named, root).dirs == (root,)
    os.chmod(path, 0o620)
    with pytest.raises(lcache.errors.PermissionError, match=f"{path} can be written by other users"):
        cachedirs.existing_cache(named, root)


def test_one_warning_of_folders_above(tmp_path, caplog):
    shared = tmp_path / "shared"
    os.mkdir(shared)
    for open_to_all, lines in ((0o755, 0), (0o775, 0), (0o1777, 0), (0o777, 1)):
        os.chmod(shared, open_to_all)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "lcache"):
            trust.warn_of_folders([str(shared / "a"), str(shared / "b")])
        assert len(caplog.records) == lines, oct(open_to_all)
    assert f"chmod +t {shared}" in caplog.text


# A server of another user. It listens and never answers, because the client only checks its user.
LISTEN = """
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen()
print("listens", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def listening(path, user):
    command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", sys.executable, "-c", LISTEN, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/") as server:
        assert server.stdout.readline() == "listens\n"
        yield
        server.stdin.close()


@pytest.mark.parametrize(
    "folder_mode, owner, found, why",
    [
        (0o755, STRANGER, True, "and its socket was found, not given"),
        (0o755, STRANGER, False, ""),
        (0o770, STRANGER, False, ""),
        (0o1777, STRANGER, False, ""),
        (0o777, STRANGER, False, "any user can replace sockets in"),
        (0o1777, THIRD, False, "the socket to another user"),
    ],
)
def test_servers_of_others(between, two_users, folder_mode, owner, found, why):
    """A server that lcache found must be this user's or root's. A server that the user named must own its socket, in a folder where no one else can replace it."""
    folder = os.path.join(between, "run")
    os.mkdir(folder)
    os.chown(folder, STRANGER, STRANGER)
    os.chmod(folder, folder_mode)
    path = os.path.join(folder, "s")
    with listening(path, STRANGER):
        os.chown(path, owner, owner)
        if why:
            with pytest.raises(lcache.errors.RefusedError, match=f"connect to {path}: the server belongs to user {STRANGER}, .*{why}"):
                connection.Connection(path, time.monotonic() + 10, found=found)
        else:
            connection.Connection(path, time.monotonic() + 10, found=found).close()


def test_own_server_anywhere(tmp_path):
    """This user's own server is never refused, whatever its folder is."""
    folder = str(tmp_path / "open")
    os.mkdir(folder)
    os.chmod(folder, 0o777)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.join(folder, "s"))
        listener.listen()
        connection.Connection(os.path.join(folder, "s"), time.monotonic() + 10, found=True).close()


def test_refusal_before_the_first_request(tmp_path, monkeypatch):
    """A server that refuses this user may answer and close before HELLO is sent. The raised error is the server's, not that of the failed send."""
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def refuse(*_args):
            with listener.accept()[0] as server:
                kind, body = error("denied", "user 2 may not use this server of user 1")
                server.sendall(protocol.frame(kind, 1, body))

        monkeypatch.setattr(connection, "require_server", refuse)
        with pytest.raises(lcache.errors.RefusedError, match="user 2 may not use this server of user 1"):
            lcache.connect(path, timeout=10)
