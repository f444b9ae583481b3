"""Every released version beside the current one: clients and programs of both, and each one's caches. docs/compatibility.md promises what this tests.

The file releases at the top of the project has a line for each version: version, commit, date. Each is built from its commit, without tags. As long as there
is no such file, the last commit stands for a release.
"""

import json
import os
import shutil
import subprocess

import pytest
from conftest import ROOT, run

# Two epochs by the plain client. It prints the order.
CLIENT = """
import json, os, sys
import lcache

data, cache = sys.argv[1:]
files = sorted(os.path.join(folder, name) for folder, _, names in os.walk(data) for name in names)
orders = []
with lcache.open(data, cache=cache, recipe="torch.distributed_sampler", seed=0, epochs=2, batch_size=16) as job:
    for epoch in range(2):
        orders.append([])
        for batch in job.epoch(epoch, rank=0):
            orders[-1] += batch.indices
            for index, sample in zip(batch.indices, batch.samples):
                assert bytes(sample) == open(files[index], "rb").read(), files[index]
    stats = job.stats()
print(json.dumps({"orders": orders, "version": stats["version"], "source": stats["jobs"][0]["source_bytes"], "schema": stats["schema"]}))
"""


def releases():
    """(version, commit) of each line of the file."""
    path = ROOT / "releases"
    if not path.exists():
        return [("the last commit", "HEAD")]
    lines = [line.split() for line in path.read_text().splitlines() if line and not line.startswith("#")]
    assert lines and all(len(line) == 3 for line in lines), f"{path}: each line has version, commit and date"
    return [(version, commit) for version, commit, _ in lines]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """made(commit): the program and the client of a commit. made(None): of the project as it is."""
    folder = tmp_path_factory.mktemp("releases")
    if shutil.which("go") is None or shutil.which("git") is None:
        pytest.skip("Go and git are not installed")
    trees = {}

    def make(commit):
        if commit in trees:
            return trees[commit]
        tree = ROOT if commit is None else folder / commit
        if commit is not None:
            if subprocess.run(["git", "cat-file", "-e", f"{commit}^{{commit}}"], cwd=ROOT, capture_output=True, check=False).returncode != 0:
                pytest.fail(f"this clone lacks commit {commit} of a release: git fetch --unshallow")
            run("git", "worktree", "add", "--quiet", "--detach", tree, commit, cwd=ROOT)
        program = folder / f"program-{commit}" / "lcache"
        env = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-trimpath -buildvcs=false"}
        run("go", "build", "-o", program, "./cmd/lcache", cwd=tree, env=env, timeout=1200)
        trees[commit] = program, tree / "python"
        return trees[commit]

    yield make
    for commit in trees:
        if commit is not None:
            run("git", "worktree", "remove", "--force", folder / commit, cwd=ROOT)


def read(data, cache, program, client):
    """Two epochs of a client with a program. Returns what it said."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LCACHE_", "PYTHON"))}
    env = {**kept, "PYTHONPATH": str(client), "PYTHONDONTWRITEBYTECODE": "1", "LCACHE_BIN": str(program), "LCACHE_LINGER": "0", "LCACHE_FACTS": "off"}
    return json.loads(run("python3", "-c", CLIENT, data, cache, env=env))


@pytest.mark.parametrize("version, commit", releases())
class TestRelease:
    def test_clients(self, version, commit, made, data, tmp_path):
        """Old client and current program, current client and old program: right bytes, and one order in all of them, bit for bit."""
        (old_program, old_client), (program, client) = made(commit), made(None)
        found = [read(data, tmp_path / f"cache{i}", *pair) for i, pair in enumerate([(old_program, old_client), (program, old_client), (old_program, client), (program, client)])]
        assert {json.dumps(one["orders"]) for one in found} == {json.dumps(found[0]["orders"])}
        assert {one["schema"] for one in found} == {1}

    def test_cache(self, version, commit, made, data, tmp_path):
        """The current program opens a cache of the old one, and reads nothing from the source again."""
        (old_program, old_client), (program, client) = made(commit), made(None)
        before = read(data, tmp_path, old_program, old_client)
        assert before["source"] > 0
        (cache,) = (path for path in tmp_path.iterdir() if (path / "job.json").exists())
        env = {k: v for k, v in os.environ.items() if not k.startswith("LCACHE_")}
        wait = run(program, "verify", "--cache", cache, "--json", env=env)
        assert json.loads(wait)["corrupt"] == 0
        after = read(data, tmp_path, program, client)
        assert after["source"] == 0 and after["orders"] == before["orders"]

    def test_downgrade(self, version, commit, made, data, tmp_path):
        """The old program opens a cache of the current one, or refuses it in one line. It never reads wrong bytes, and never damages it."""
        (old_program, old_client), (program, client) = made(commit), made(None)
        first = read(data, tmp_path, program, client)
        try:
            again = read(data, tmp_path, old_program, old_client)
        except AssertionError as e:
            assert "Traceback" not in str(e) or "lcache.errors" in str(e), e
        else:
            assert again["orders"] == first["orders"]
        assert read(data, tmp_path, program, client)["orders"] == first["orders"]
