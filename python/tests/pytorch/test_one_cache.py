"""A source has one cache for ImageFolder, lcache.open, `lcache run` and `lcache ingest`, whichever is first, unless a filter removes files."""

import json
import os
import subprocess
import sys

import pytest
import realserver
from embedded_servers import root, servers  # noqa: F401
from waits import wait_for_end

import lcache
from lcache._client.cachedirs import folders

pytest.importorskip("torch", reason="torch is not installed")
from lcache.torch import ImageFolder  # noqa: E402
from lcache.torch.image_folder import IMG_EXTENSIONS  # noqa: E402

IMAGES = ("a/1.jpg", "a/2.png", "b/3.JPEG")
EXT = f"--ext={','.join(IMG_EXTENSIONS)}"


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "train"
    for name in IMAGES:
        add(path, name)
    return path


def add(source, name):
    (source / name).parent.mkdir(parents=True, exist_ok=True)
    (source / name).write_text(name)


def of_image_folder(source, root):
    data = ImageFolder(source, decode=bytes, cache=root)
    with data.job:
        return [content.decode() for content, _ in data]


def of_open(source, root, **options):
    with lcache.open(source, root, **options) as job:
        return [bytes(view).decode() for view in job.get(range(job.samples)).samples]


READ = """
import lcache
with lcache.connect() as job:
    print(*[bytes(view).decode() for view in job.get(range(job.samples)).samples])
"""


def of_run(source, root, *flags):
    command = [realserver.BINARY, "run", "--source", source, "--cache", root, "--quiet", *flags, "--", sys.executable, "-c", READ]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout.split()


def of_ingest(source, root, *flags):
    """Ingests into the folder that the others would use."""
    (folder,) = folders(str(source), root)
    command = [realserver.BINARY, "ingest", "--source", source, "--cache", folder, "--json", *flags]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout)
    assert report["dirs"] == [folder]
    return None


USERS = {"ImageFolder": of_image_folder, "open": of_open, "run": of_run, "ingest": of_ingest}


def ended(root):
    for pid in servers(root):
        wait_for_end(pid)


@pytest.mark.parametrize("first", USERS)
@pytest.mark.parametrize("second", USERS)
def test_the_second_finds_the_firsts(source, root, monkeypatch, first, second):
    monkeypatch.setenv("LCACHE_LINGER", "0")
    for user in first, second:
        got = USERS[user](source, root)
        assert got is None or got == list(IMAGES)
        ended(root)
        assert [os.path.join(root, name) for name in os.listdir(root)] == list(folders(str(source), root))


@pytest.mark.parametrize("first", USERS)
@pytest.mark.parametrize("second", USERS)
def test_a_filter_that_removes_files(source, root, monkeypatch, first, second):
    """ImageFolder takes only the images, and has its own cache. The log of the second program names the other cache."""
    monkeypatch.setenv("LCACHE_LINGER", "0")
    add(source, "b/4.txt")
    plain, (own,) = folders(str(source), root), folders(str(source), root, [EXT])
    wanted = set()
    for user in first, second:
        got = USERS[user](source, root)
        assert got is None or got == [*IMAGES, "b/4.txt"][: 3 if user == "ImageFolder" else 4]
        wanted |= {own} if user == "ImageFolder" else set(plain)
        ended(root)
        assert {os.path.join(root, name) for name in os.listdir(root)} == wanted


def test_the_other_cache_is_named(source, root, caplog):
    add(source, "b/4.txt")
    (plain,), (own,) = folders(str(source), root), folders(str(source), root, [EXT])
    of_image_folder(source, root)
    assert "another cache" not in caplog.text
    of_open(source, root)
    of_open(source, root)
    (line,) = [r.getMessage() for r in caplog.records if "another cache" in r.getMessage()]
    assert own in line and f"ext={','.join(IMG_EXTENSIONS)}" in line and "lcache rm" in line
    caplog.clear()
    of_open(source, root, ext=[".jpg", ".jpeg"])
    lines = [r.getMessage() for r in caplog.records if "another cache" in r.getMessage()]
    assert len(lines) == 2 and any(own in line for line in lines) and any(plain in line and "no ext=" in line for line in lines)


def test_a_filtered_cache_of_before_is_found(source, root, caplog):
    """An earlier release named the cache after the filter, although the filter removes no file."""
    (own,) = folders(str(source), root, [EXT])
    subprocess.run([realserver.BINARY, "ingest", "--source", source, "--cache", own, EXT, "--quiet"], check=True, timeout=120)
    assert of_image_folder(source, root) == list(IMAGES)
    assert os.listdir(root) == [os.path.basename(own)]
    add(source, "b/4.txt")
    assert of_image_folder(source, root) == list(IMAGES)
    assert os.listdir(root) == [os.path.basename(own)]


def test_a_file_that_the_filter_removes_comes_later(source, root, monkeypatch):
    """A running server serves the samples that were listed. The next server has a cache that fits its program."""
    monkeypatch.setenv("LCACHE_LINGER", "0")
    data = ImageFolder(source, decode=bytes, cache=root)
    with data.job:
        add(source, "a/0.txt")
        assert of_image_folder(source, root) == of_open(source, root) == list(IMAGES)
    ended(root)
    assert of_image_folder(source, root) == list(IMAGES)
    ended(root)
    assert of_open(source, root) == ["a/0.txt", *IMAGES]
    ended(root)
    assert of_image_folder(source, root) == list(IMAGES)


def test_a_server_with_another_filter_is_not_used(source, root):
    """A server of all files is not used for the images only, and vice versa."""
    add(source, "b/4.txt")
    with lcache.open(source, root) as job:
        data = ImageFolder(source, decode=bytes, cache=root)
        with data.job:
            assert (len(data), job.samples) == (3, 4) and data.job.pid != job.pid
            assert ImageFolder(source, decode=bytes, cache=root).job.pid == data.job.pid
            assert lcache.open(source, root).pid == job.pid


STARTED = """
import sys, lcache
job = lcache.open(sys.argv[1], sys.argv[2], ext=sys.argv[3].split(",") if sys.argv[3] else ())
print(job.pid, job.samples, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("removes", [False, True])
def test_many_at_one_moment(source, root, removes):
    """Ranks with a filter and programs without one start together. There is one server for each filter that removes files, and one for all others."""
    if removes:
        add(source, "b/4.txt")
    exts = ["", ",".join(IMG_EXTENSIONS)] * 4
    streams = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    processes = [subprocess.Popen([sys.executable, "-c", STARTED, source, root, ext], **streams) for ext in exts]
    said = [p.stdout.readline().split() for p in processes]
    errors = [p.communicate("")[1] for p in processes]
    assert [p.returncode for p in processes] == [0] * len(exts), errors
    assert [int(line[1]) for line in said] == [4 if removes and not ext else 3 for ext in exts]
    assert len({line[0] for line in said}) == len(os.listdir(root)) == (2 if removes else 1)


def test_a_server_that_is_started_again(source, root):
    """The dataset's copies in workers start the server again in the same place, with the same listing."""
    data = ImageFolder(source, decode=bytes, cache=root)
    with data.job:
        os.kill(data.job.pid, 9)
        assert [content.decode() for content, _ in data] == list(IMAGES)
        assert [os.path.join(root, name) for name in os.listdir(root)] == list(folders(str(source), root))
