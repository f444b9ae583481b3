"""Shards without random access, because they are compressed or their web server has no ranges: lcache.open, Dataset and ImageFolder first read them front to back."""

import functools
import http.server
import io
import tarfile
import threading

import pytest
from embedded_servers import root  # noqa: F401

import lcache

torch = pytest.importorskip("torch", reason="torch is not installed")
from lcache.torch import Dataset, ImageFolder  # noqa: E402

SHARDS, OF_EACH = 3, 20
FILES = [(f"class{i % 4}/{i:03d}.jpg", bytes([i]) * (20_000 + 6_000 * i)) for i in range(SHARDS * OF_EACH)]
WANT = [(data, i % 4) for i, (_, data) in enumerate(FILES)]


@pytest.fixture
def folder(tmp_path):
    """Shards, each plain and compressed."""
    for s in range(SHARDS):
        for ending, mode in ((".tar", "w"), (".tar.gz", "w:gz")):
            with tarfile.open(tmp_path / f"{s}{ending}", mode) as tar:
                for name, data in FILES[s * OF_EACH :][:OF_EACH]:
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
    return tmp_path


@pytest.fixture
def url(folder):
    """Python's own web server, which does not support ranges."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def source_of(kind, folder, url):
    return {"packed": f"tar:{folder}/{{0..2}}.tar.gz", "web": f"tar:{url}/{{0..2}}.tar", "web, packed": f"tar:{url}/{{0..2}}.tar.gz"}[kind]


def loaded(data):
    loader = torch.utils.data.DataLoader(data, batch_size=7, collate_fn=lambda pairs: pairs)
    return [pair for pairs in loader for pair in pairs]


@pytest.mark.parametrize("kind", ["packed", "web", "web, packed"])
def test_streams(kind, folder, url, root, monkeypatch):  # noqa: F811
    monkeypatch.setenv("LCACHE_LINGER", "0")
    source, stream = source_of(kind, folder, url), kind != "web"
    with lcache.open(source, root, stream=stream, recipe="torch.distributed_sampler", epochs=2, batch_size=8) as job:
        batch = job.get(range(job.samples))
        assert list(zip(map(bytes, batch.samples), batch.labels)) == WANT
        for epoch in range(2):
            assert sorted(i for batch in job.epoch(epoch) for i in batch.indices) == list(range(len(WANT)))
        assert job.stats()["jobs"][0]["source_reads"] == 0, "the cache was not filled before"
        data = Dataset(source, cache=root, stream=stream)
        assert data.job.pid == job.pid
        assert [data[i] for i in range(len(WANT))] == WANT and loaded(data) == WANT
        data.job.close()
    for s in range(SHARDS):  # the cache has all of it
        (folder / f"{s}.tar").unlink()
    images = ImageFolder(source_of("packed", folder, url), cache=root, stream=True, decode=bytes)
    assert images.classes == [f"class{c}" for c in range(4)] and images.targets == [label for _, label in WANT]
    assert loaded(images) == WANT
    images.job.close()


def test_without_stream(folder, url, root):  # noqa: F811
    for kind in ("packed", "web, packed"):
        with pytest.raises(lcache.Error, match=r'"0\.tar\.gz" is compressed, and samples can\'t be read at random in it: .*give stream=True to read it once, front to back'):
            lcache.open(source_of(kind, folder, url), root)
    for opened in (Dataset, ImageFolder):
        with pytest.raises(lcache.Error, match="stream=True"):
            opened(source_of("packed", folder, url), cache=root)


def test_a_budget_that_does_not_hold_all(folder, url, root):  # noqa: F811
    """The error is raised when the source is opened, not at a later read."""
    with pytest.raises(lcache.Error, match="can only be read front to back, so the missing samples can't be read later"):
        lcache.open(source_of("packed", folder, url), root, stream=True, budget="8MB")
