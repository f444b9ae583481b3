"""The messages when a user opens a source for the first time, and the files that are left if that fails."""

import fcntl
import functools
import http.server
import logging
import os
import pathlib
import pty
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import threading

import pytest
import realserver
from embedded_servers import folder, root  # noqa: F401
from waits import wait_for_end

import lcache
from lcache._client.cache_lock import NewFolder


def opened_on_a_terminal(*arguments):
    """The terminal output of a program that opens a source."""
    main, terminal = pty.openpty()
    code = "import sys, lcache; lcache.open(sys.argv[1], cache=sys.argv[2]).close()"
    try:
        process = subprocess.run([sys.executable, "-c", code, *arguments], stderr=terminal, timeout=60)
        assert process.returncode == 0
        os.close(terminal)
        terminal = None
        said = b""
        while True:
            try:
                said += os.read(main, 4096)
            except OSError:  # everything was read, and the other end is closed
                return said.decode()
    finally:
        os.close(main)
        if terminal is not None:
            os.close(terminal)


def test_place_is_printed_once(folder, root, caplog):
    caplog.set_level(logging.INFO, "lcache")
    for _ in range(2):
        lcache.open(folder.root, cache=root).close()
    (line,) = [r.getMessage() for r in caplog.records if "copied to" in r.getMessage()]
    (cache,) = os.listdir(root)
    taken = re.search(r"will take ([\d.]+) MB", line)
    assert folder.root in line and os.path.join(root, cache) in line and "cache=" in line and "$LCACHE_CACHE" in line
    on_disk = sum(os.stat(os.path.join(root, cache, name)).st_size for name in ("arena", "manifest", "sums", "job.json"))
    assert abs(float(taken[1]) * 1e6 / on_disk - 1) < 0.2, (line, on_disk)


def opened_in_a_process(folder, root, code="", **variables):
    """The stderr of a program that opens a source without a terminal. code runs before."""
    code += "\nimport sys, lcache; lcache.open(sys.argv[1], cache=sys.argv[2]).close()"
    return subprocess.Popen([sys.executable, "-c", code, folder.root, root], stderr=subprocess.PIPE, text=True, env={**os.environ, **variables})


def said_by(process):
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    return said


def test_place_is_printed_to_a_log_file(folder, root):
    """Without a terminal, stderr still gets one line. If several processes open a new source at the same time, only one prints it."""
    said = [said_by(p) for p in [opened_in_a_process(folder, root) for _ in range(3)]]
    (line,) = [line for text in said for line in text.splitlines() if "copied to" in line]
    assert line.startswith(f"lcache: {folder.root}: the ") and root in line and "cache= or $LCACHE_CACHE puts it elsewhere" in line
    assert "copied to" not in said_by(opened_in_a_process(folder, root))


@pytest.mark.parametrize("quiet, lines", [("1", 0), ("true", 0), ("0", 1), ("", 1)])
def test_place_is_not_printed_if_quiet(folder, root, quiet, lines):
    assert said_by(opened_in_a_process(folder, root, LCACHE_QUIET=quiet)).count("copied to") == lines


def test_place_is_printed_once_if_logged(folder, root):
    said = said_by(opened_in_a_process(folder, root, "import logging; logging.basicConfig(level=logging.INFO)"))
    assert said.count("copied to") == 1 and "INFO:lcache:" in said


def test_place_is_printed_on_a_terminal(folder, root):
    first, second = opened_on_a_terminal(folder.root, root), opened_on_a_terminal(folder.root, root)
    assert first.count("copied to") == 1 and root in first
    assert "copied to" not in second


def test_a_folder_of_shards(root, tmp_path, caplog):
    """A new cache of a folder of tar shards: a warning names the pattern that reads the samples inside. With more other files than shards there is none."""
    shards = tmp_path / "shards"
    shards.mkdir()
    for name in ("a-0.tar", "a-1.tar"):
        with tarfile.open(shards / name, "w") as shard:
            shard.add(__file__, f"{name}.py")
    for _ in range(2):
        lcache.open(shards, cache=root).close()
    (warning,) = (r.getMessage() for r in caplog.records if "tar file" in r.getMessage())
    pattern = f"tar:{shards}/*.tar"
    assert warning == f"{shards}: each sample is a whole tar file: give {pattern!r} as the source to read the samples inside"
    with lcache.open(pattern, cache=root) as job:
        assert job.info.samples == 2
    for name, says in (("README", True), ("a", True), ("b", False)):
        (shards / name).write_text("shards of a")
        caplog.clear()
        lcache.open(shards, cache=os.path.join(root, name)).close()
        assert ("tar file" in caplog.text) == says


def test_a_folder_of_files_with_many_samples(root, tmp_path, caplog):
    """A new cache of a folder of Parquet files: a warning names the source that reads the rows in them."""
    (tmp_path / "tables").mkdir()
    for name in "ab":
        (tmp_path / "tables" / f"{name}.parquet").write_text(name)
    for _ in range(2):
        lcache.open(tmp_path / "tables", cache=root).close()
    (warning,) = (r for r in caplog.records if "parquet" in r.getMessage())
    assert warning.levelno == logging.WARNING
    assert warning.getMessage().startswith(f"{tmp_path}/tables: each sample is a whole .parquet file: give ")


def test_a_source_that_is_a_file(root, tmp_path):
    """The error for shards without tar: shows the name with it. The error for any other file does not advise to give its folder."""
    for name in ("a-{0..5}.tar", "b.tar.gz", "tokens.npy", "README"):
        (tmp_path / name).write_text(name)
    for name, builtin in (("a-{0..5}.tar", NotADirectoryError), ("b.tar.gz", NotADirectoryError), ("c-{0..5}.tar", FileNotFoundError)):
        with pytest.raises(builtin, match=re.escape(f": did you mean 'tar:{tmp_path}/{name}'?")):
            lcache.open(tmp_path / name, cache=root)
    with pytest.raises(NotADirectoryError, match=re.escape(f": it is a file: did you mean 'npy:{tmp_path}/tokens.npy'?")):
        lcache.open(tmp_path / "tokens.npy", cache=root)
    with pytest.raises(NotADirectoryError, match="it is a file: give a folder with a file for each sample, tar shards"):
        lcache.open(tmp_path / "README", cache=root)
    assert not os.path.exists(root)


def test_files_that_are_left_out_are_counted(root, tmp_path, caplog, monkeypatch):
    """Files that are not samples cause a warning for a new cache, and a line at INFO when a later server lists the source. Without such files nothing is logged."""
    monkeypatch.setenv("LCACHE_LINGER", "0")
    caplog.set_level(logging.INFO, "lcache")
    source = tmp_path / "source"
    for name in ("a/1", "b/2", "3", "4"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    for level in (logging.WARNING, logging.INFO):
        caplog.clear()
        with lcache.open(source, cache=root) as job:
            assert job.samples == 2
            pid = job.pid
        wait_for_end(pid)
        (said,) = (r for r in caplog.records if "left out" in r.getMessage())
        assert said.levelno == level and said.getMessage() == f"{source}: 2 files are left out: not in a class folder; flat=True takes all files as one list"
    caplog.clear()
    with lcache.open(source, cache=root, flat=True) as job:
        assert job.samples == 4
    assert "left out" not in caplog.text


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def test_the_listing_of_a_complete_cache_is_logged(folder, root, tmp_path, caplog, monkeypatch):
    """A list is not requested again if its cache has all of it. The log then says when it was listed."""
    monkeypatch.setenv("LCACHE_LINGER", "0")
    caplog.set_level(logging.INFO, "lcache")
    for i in range(5):
        (tmp_path / f"{i}.bin").write_bytes(b"%d" % i * 100)
    (tmp_path / "LIST").write_text("".join(f"{i}.bin\n" for i in range(5)))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(tmp_path))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        said = []
        try:
            for _ in range(2):
                caplog.clear()
                with lcache.open(f"http://127.0.0.1:{server.server_port}/LIST", cache=root) as job:
                    assert [bytes(view) for view in job.get(range(5)).samples] == [b"%d" % i * 100 for i in range(5)]
                    pid = job.pid
                wait_for_end(pid)
                said.append([r.getMessage() for r in caplog.records if ": listed " in r.getMessage()])
        finally:
            server.shutdown()
            thread.join()
    assert said[0] == [] and len(said[1]) == 1, said
    (cache,) = os.listdir(root)
    assert re.search(r"/LIST: listed 2\d{3}-\d\d-\d\dT\d\d:\d\d:\d\dZ, and not again, because " + re.escape(os.path.join(root, cache)), said[1][0])


class Ranges(Quiet):
    """A web server with ranges, for shards, which counts its requests."""

    asked = 0

    def do_GET(self):
        type(self).asked += 1
        file = pathlib.Path(self.translate_path(self.path))
        data = file.read_bytes()
        first, last = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups() if "Range" in self.headers else (0, len(data) - 1)
        part = data[int(first) : int(last) + 1]
        self.send_response(206 if "Range" in self.headers else 200)
        if "Range" in self.headers:
            self.send_header("Content-Range", f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Last-Modified", self.date_time_string(file.stat().st_mtime))
        self.end_headers()
        self.wfile.write(part)


def test_cost_of_a_first_epoch_over_a_network(root, tmp_path, caplog, monkeypatch):
    """Before the first sample is read, a warning shows the command that needs fewer requests. After that command no warning is printed."""
    monkeypatch.setenv("LCACHE_LINGER", "0")
    with tarfile.open(tmp_path / "0.tar", "w") as shard:
        for i in range(150):
            (tmp_path / f"{i}.txt").write_text(f"{i:04}")
            shard.add(tmp_path / f"{i}.txt", f"{i}.txt")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Ranges, directory=str(tmp_path))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            source = f"tar:http://127.0.0.1:{server.server_port}/0.tar"
            with lcache.open(source, cache=root, recipe="torch.distributed_sampler", seed=3, batch_size=10) as job:
                pid = job.pid
            (warning,) = (r for r in caplog.records if "first epoch" in r.getMessage())
            said, _, command = warning.getMessage().partition("An ingest before it takes 1 GET: ")
            assert warning.levelno == logging.WARNING and said == f"{source}: the first epoch asks the source for each sample: 150 GETs for 600 B. "
            wait_for_end(pid)
            words = shlex.split(command)
            assert words[:2] == ["lcache", "ingest"] and "--batch-size" in words
            before = Ranges.asked
            subprocess.run([realserver.BINARY, *words[1:]], check=True, stdout=subprocess.DEVNULL)
            assert Ranges.asked - before <= 2
            caplog.clear()
            with lcache.open(source, cache=root, recipe="torch.distributed_sampler", seed=3, batch_size=10) as job:
                assert bytes(job.get([7]).samples[0]) == b"0007"
            assert "first epoch" not in caplog.text
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("below", ["", "deep/er"])
def test_a_typo_leaves_nothing(folder, root, below):
    cache = os.path.join(root, below)
    for source, builtin in ((folder.root + "x", FileNotFoundError), (__file__, NotADirectoryError)):
        with pytest.raises(builtin) as e:
            lcache.open(source, cache=cache)
        assert isinstance(e.value, lcache.Error) and e.value.errno and source in str(e.value)
        assert not os.path.exists(root)


def test_the_name_that_was_meant(folder, root):
    with pytest.raises(FileNotFoundError, match=re.escape(f"did you mean {folder.root}?")):
        lcache.open(folder.root + "x", cache=root)


@pytest.mark.parametrize("options", [{"budget": "1kB"}, {"ext": ".nothing"}, {"labels": "/nowhere.csv"}, {"budget": "lots"}])
def test_a_wrong_argument_leaves_nothing(folder, root, options):
    with pytest.raises(lcache.Error):
        lcache.open(folder.root, cache=root, **options)
    assert not os.path.exists(root)


def test_files_of_others_are_kept(folder, root):
    os.makedirs(root)
    with open(os.path.join(root, "notes"), "w"):
        pass
    with pytest.raises(lcache.Error):
        lcache.open(folder.root, cache=root, ext=".nothing")
    assert os.listdir(root) == ["notes"]


def test_errors_speak_python(folder, root):
    with pytest.raises(lcache.ArgumentError, match=r'give budget="\d+MiB" or more') as e:
        lcache.open(folder.root, cache=root, budget="1kB")
    assert "--" not in str(e.value) and "lcache ingest" not in str(e.value)
    with pytest.raises(lcache.ArgumentError, match='on_error="maybe": must be one of fail, skip'):
        lcache.open(folder.root, cache=root, on_error="maybe")


def test_a_file_in_the_cache_s_way(folder, root, tmp_path):
    with pytest.raises(NotADirectoryError, match="give another cache=") as e:
        lcache.open(folder.root, cache=__file__)
    assert isinstance(e.value, lcache.Error)


def test_missing_program(folder, root, monkeypatch):
    monkeypatch.setenv("LCACHE_BIN", "/nowhere/lcache")
    with pytest.raises(FileNotFoundError, match="LCACHE_BIN") as e:
        lcache.open(folder.root, cache=root)
    assert isinstance(e.value, lcache.Error) and not os.path.exists(root)


def test_a_sample_that_is_gone(tmp_path, root):
    source = tmp_path / "data"
    source.mkdir()
    for name in ("a", "b"):
        (source / name).write_bytes(name.encode() * 100)
    with lcache.open(source, cache=root) as job:
        (source / "b").unlink()
        with pytest.raises(FileNotFoundError) as e:
            job.get([1])
        assert isinstance(e.value, lcache.SampleError) and e.value.sample == "b"
        assert bytes(job.get([0]).samples[0]) == b"a" * 100


def test_a_lingering_server_says_when_it_ends(folder, root):
    lcache.open(folder.root, cache=root).close()
    (cache,) = os.listdir(root)
    moved = os.path.join(root, cache, "lcache.sock")
    os.rename(moved, moved + ".away")  # so that the next program does not find it, and tries to open the cache
    with pytest.raises(lcache.ConnectionError, match=r"which has no client and exits in \d+ s: stop it with lcache stop \d+"):
        lcache.open(folder.root, cache=root, timeout=1)
    os.rename(moved + ".away", moved)


def test_a_folder_that_another_process_uses_stays(tmp_path):
    """A failed listing removes the folder that it made, unless `lcache run` has begun a cache there."""
    for used in (True, False):
        with pytest.raises(ZeroDivisionError), NewFolder(str(tmp_path / "root" / "cache")):
            os.makedirs(tmp_path / "root" / "cache", exist_ok=True)
            with open(tmp_path / "root" / "cache" / "LOCK", "w") as lock, open(tmp_path / "root" / "cache" / "open.lock", "w"):
                if used:
                    fcntl.flock(lock, fcntl.LOCK_EX)
                    lock = os.dup(lock.fileno())
            1 / 0
        assert os.path.exists(tmp_path / "root" / "cache" / "LOCK") == used
        if used:
            os.close(lock)
            shutil.rmtree(tmp_path / "root")
    assert not os.path.exists(tmp_path / "root")
