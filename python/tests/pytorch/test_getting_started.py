"""Follows docs/getting-started.md as a reader does: writes every file, runs every command, and compares every output with the page."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys

import pytest
import realserver
from embedded_servers import servers
from waits import wait_for_end

PAGE = os.path.join(realserver.ROOT, "docs", "getting-started.md")


def blocks():
    """The fenced blocks: (language, text)."""
    with open(PAGE) as f:
        return re.findall(r"^```(\w+)\n(.*?)^```$", f.read(), re.M | re.S)


def pattern(line):
    """A regular expression for a line of output. … matches anything, and the width of columns may vary."""
    return r"\s*" + r"\s*".join(".*" if word == "…" else re.escape(word) for word in re.split(r"(…)|\s+", line) if word) + r"\s*"


def missing(shown, said):
    """The first line of the page that is missing in the output, in that order."""
    lines = iter(said.splitlines())
    for want in shown.splitlines():
        if not any(re.fullmatch(pattern(want), line) for line in lines):
            return want
    return None


def test_missing():
    said = "a\ndefault   budget  3 MB (x)\nb: 12 s\n"
    assert missing("a\nb: … s\n", said) is None
    assert missing("default budget … (x)\n", said) is None
    assert missing("b: … s\na\n", said) == "a"
    assert missing("b: … min\n", said) == "b: … min"


@pytest.fixture
def machine(tmp_path):
    """A home, a bin folder with pip, and the environment of a shell there. pip installs into a folder of the test."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    if shutil.which("go") is None:
        pytest.skip("Go is not installed")
    pytest.importorskip("hatchling", reason="hatchling is not installed: pip would have to fetch it")
    scripts, site = tmp_path / "scripts", tmp_path / "site"
    scripts.mkdir()
    (scripts / "pip").write_text(f'#!/bin/sh\nexec {sys.executable} -m pip --disable-pip-version-check "$@" --no-deps --no-build-isolation --target {site}\n')
    (scripts / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    for script in scripts.iterdir():
        script.chmod(0o755)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LCACHE_", "XDG_", "PYTHON")) and k not in ("WORLD_SIZE", "RANK", "LOCAL_RANK")}
    env.update(HOME=str(tmp_path), PATH=f"{scripts}:{site}/bin:{env['PATH']}", PYTHONPATH=str(site), TMPDIR=str(tmp_path), OMP_NUM_THREADS="1")
    # Go's own folders stay where they are.
    for name in ("GOCACHE", "GOMODCACHE", "GOPATH"):
        env[name] = subprocess.run(["go", "env", name], capture_output=True, text=True, check=True).stdout.strip()
    yield tmp_path, env
    for pid in servers(str(tmp_path)):
        os.kill(pid, 15)
        wait_for_end(pid)


def test_page(machine):
    home, env = machine
    work = home / "work"
    work.mkdir()
    where, said, losses = realserver.ROOT, "", []
    for language, text in blocks():
        if language == "python":
            name = re.match(r"# (\w+\.py)\n", text).group(1)
            (work / name).write_text(text)
        elif language == "sh":
            done = subprocess.run(["bash", "-e", "-c", text], cwd=where, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=400)
            assert done.returncode == 0, f"{text}\n{done.stdout[-3000:]}"
            said, where = done.stdout, work
            losses.append(re.findall(r"^epoch \d: loss \S+$", said, re.M))
        elif language == "text":
            line = missing(text, said)
            assert line is None, f"not said, or not there: {line}\n{said}"
        else:
            pytest.fail(f"a block of {language}: sh, python or text is checked here")
    first, *others = [of_run for of_run in losses if of_run]
    assert len(first) == 3 and others == [first, first], "the order is the same in each run, and therefore the result of the training"


def test_commands_only_in_blocks():
    """No test would run a command that is only in the text. So commands in the text must be names, not lines to copy."""
    with open(PAGE) as f:
        text = re.sub(r"^```.*?^```$", "", f.read(), flags=re.M | re.S)
    shown = re.findall(r"`(lcache [^`]*)`", text)
    assert set(shown) <= {"lcache run", "lcache doctor --source DIR"}, shown
