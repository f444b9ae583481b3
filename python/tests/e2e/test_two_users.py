"""Two users on one machine: neither trusts files of the other in a shared folder, but a team can share a server. Needs root."""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

import pytest
import realserver
from realserver import Folder, environment

import lcache

OWNER, OTHER, TEAM = 61001, 61002, 61009


@pytest.fixture
def machine():
    """A machine with a scratch folder for all (1777), a readable source, and lcache where every user finds it."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("needs root and setpriv, to be two users")
    top = tempfile.mkdtemp(prefix="lcache-test-", dir=os.environ.get("LCACHE_TEST_DIR", "/var/tmp"))
    try:
        os.chmod(top, 0o755)
        yield Machine(top)
    finally:
        shutil.rmtree(top)


class Machine:
    def __init__(self, top):
        self.top, self.scratch = top, os.path.join(top, "scratch")
        self.binary = shutil.copy(realserver.BINARY, os.path.join(top, "lcache"))
        self.python = os.path.join(top, "python")
        shutil.copytree(os.path.dirname(lcache.__file__), os.path.join(self.python, "lcache"), ignore=shutil.ignore_patterns("__pycache__"))
        draw = random.Random(3)
        self.source = Folder(os.path.join(top, "source"), [draw.randrange(1, 4000) for _ in range(200)])
        os.mkdir(self.scratch)
        os.chmod(self.scratch, 0o1777)
        subprocess.run(["chmod", "-R", "a+rX", self.python, self.source.root, self.binary], check=True)
        for user in (0, OWNER, OTHER):
            for folder in (self.home(user), self.home(user) + "/run"):
                os.mkdir(folder, 0o700)
                os.chown(folder, user, user)

    def home(self, user):
        return os.path.join(self.top, f"home{user}")

    def command(self, user, *words, group=None):
        return ["setpriv", f"--reuid={user}", f"--regid={user}", *([f"--groups={group}"] if group else ["--clear-groups"]), *map(str, words)]

    def environment(self, user):
        home = self.home(user)
        return environment(HOME=home, XDG_CACHE_HOME=home + "/cache", XDG_RUNTIME_DIR=home + "/run", PYTHONPATH=self.python, LCACHE_BIN=self.binary, LCACHE_LINGER="0")

    def run(self, user, *words, group=None):
        command = self.command(user, *words, group=group)
        return subprocess.run(command, capture_output=True, text=True, env=self.environment(user), cwd="/", timeout=120)

    def train(self, user):
        """`lcache run` of a command that does nothing, in the scratch folder."""
        return self.run(user, self.binary, "run", "--source", self.source.root, "--cache", self.scratch, "--", "true")

    def open(self, user):
        """lcache.open in the scratch folder."""
        code = f"import lcache\nwith lcache.open({self.source.root!r}, {self.scratch!r}, timeout=30) as job:\n    print(bytes(job.get([7]).samples[0]).hex())"
        return self.run(user, sys.executable, "-c", code)

    def cache(self):
        """The only cache in the scratch folder."""
        (name,) = os.listdir(self.scratch)
        return os.path.join(self.scratch, name)


@pytest.mark.parametrize("victim", [OTHER, 0], ids=["a user", "root"])
@pytest.mark.parametrize("mode", ["a+rwX", "go-rwx"], ids=["open to all", "as lcache made it"])
def test_a_cache_planted_by_another_user(machine, victim, mode):
    """Another user's cache is where run and lcache.open look for that of the source. Nothing of it is read, and the error says what to do."""
    assert machine.train(OWNER).returncode == 0
    cache = machine.cache()
    subprocess.run(["chmod", "-R", mode, cache], check=True)
    before = {name: os.stat(os.path.join(cache, name)).st_mtime_ns for name in os.listdir(cache)}
    for tried in (machine.train(victim), machine.open(victim), *(machine.run(victim, machine.binary, "serve", *more, "--cache", cache) for more in ((), ("--take-over",)))):
        assert tried.returncode != 0 and "serving" not in tried.stderr, tried
        assert f"{cache} belongs to user {OWNER}" in tried.stderr and "chown -R" in tried.stderr and "give another" in tried.stderr, tried
    assert {name: os.stat(os.path.join(cache, name)).st_mtime_ns for name in os.listdir(cache)} == before


@pytest.mark.parametrize("user", [OTHER, 0], ids=["a user", "root"])
def test_a_scratch_folder_for_all(machine, user):
    """A folder such as /tmp may contain caches: no warning, and the right bytes, twice. Files of other users there do not matter."""
    with open(os.path.join(machine.scratch, "job.json"), "w") as f:  # does not make the scratch folder a cache
        f.write('{"schema": 1, "source": "/elsewhere"}')
    os.chown(os.path.join(machine.scratch, "job.json"), OWNER, OWNER)
    os.chmod(os.path.join(machine.scratch, "job.json"), 0o666)
    for _ in range(2):
        for done in (machine.train(user), machine.open(user)):
            assert done.returncode == 0 and "every" not in done.stderr, done  # no warning about a folder that any user can change
        assert done.stdout.strip() == machine.source.contents[7].hex()


def test_a_team_shares_a_server(machine):
    """A member of --socket-group can read at a socket that is named. All other users are refused."""
    cache, socket = machine.home(OWNER) + "/cache", os.path.join(machine.top, "team", "s")
    os.mkdir(os.path.dirname(socket), 0o755)
    os.chown(os.path.dirname(socket), OWNER, TEAM)
    made = machine.run(OWNER, machine.binary, "ingest", "--source", machine.source.root, "--cache", cache, "--quiet")
    assert made.returncode == 0, made
    command = machine.command(OWNER, machine.binary, "serve", "--cache", cache, "--socket", socket, "--socket-group", TEAM, "--json", group=TEAM)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=machine.environment(OWNER), cwd="/") as server:
        try:
            assert server.stdout.readline().strip() == "{"
            code = f"import lcache\nwith lcache.connect({socket!r}, timeout=30) as job:\n    print(bytes(job.get([7]).samples[0]).hex())"
            member = machine.run(OTHER, sys.executable, "-c", code, group=TEAM)
            assert member.stdout.strip() == machine.source.contents[7].hex(), member
            status = machine.run(OTHER, machine.binary, "status", "--socket", socket, "--json", group=TEAM)
            assert json.loads(status.stdout)["pid"] == server.pid, status
            stranger = machine.run(OTHER, sys.executable, "-c", code)
            assert "RefusedError" in stranger.stderr and stranger.returncode != 0, stranger
            os.chmod(os.path.dirname(socket), 0o777)  # any user could put a socket there
            for words in ((sys.executable, "-c", code), (machine.binary, "status", "--socket", socket)):
                refused = machine.run(OTHER, *words, group=TEAM)
                assert refused.returncode != 0 and str(OWNER) in refused.stderr and "chmod o-w" in refused.stderr, refused
        finally:
            server.terminate()
            server.communicate(timeout=60)
    assert server.returncode == 0
