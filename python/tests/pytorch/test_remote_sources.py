"""lcache.open and lcache.torch with network sources, from a web server in this process: a list, a bucket, and shards on a web server and in a bucket."""

import contextlib
import http.server
import io
import re
import tarfile
import threading
import time
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from embedded_servers import root  # noqa: F401
from waits import wait_for_end

import lcache

torch = pytest.importorskip("torch", reason="torch is not installed")
from lcache.torch import Dataset  # noqa: E402

FILES = {f"c{i % 3}/{i:02d}.bin": bytes([i]) * (100 + 71 * i) for i in range(24)}


def shard():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for i, data in enumerate(FILES.values()):
            for ext, part in (("bin", data), ("cls", b"%d" % (i % 5))):
                member = tarfile.TarInfo(f"{i:02d}.{ext}")
                member.size = len(part)
                tar.addfile(member, io.BytesIO(part))
    return out.getvalue()


class Handler(http.server.BaseHTTPRequestHandler):
    """A web server with ranges and ETags. Below /bucket/ it also lists a public bucket."""

    region = None  # of the bucket; None: any
    denied = False  # whether objects of the bucket are denied
    token = None  # the valid session token; None: no token is required
    valid_for = None  # for this number of objects, then the token is "second"
    objects = {**FILES, "x.tar": shard(), "LIST": "".join(f"{name}\n" for name in FILES).encode()}
    objects["ELSEWHERE"] = b""  # a list that names another port; see the fixture url

    def do_GET(self):
        url = urlsplit(self.path)
        if self.expired():
            return self.answer(400, b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>", **{"Content-Type": "application/xml"})
        if self.region is not None:
            moved = {"Content-Type": "application/xml", "X-Amz-Bucket-Region": self.region}
            return self.answer(301, b"<Error><Code>PermanentRedirect</Code><Message>elsewhere</Message></Error>", **moved)
        if self.denied and "list-type" not in url.query:
            return self.answer(403, b"<Error><Code>AccessDenied</Code><Message>denied</Message></Error>", **{"Content-Type": "application/xml"})
        asked, query = unquote(url.path.removeprefix("/bucket").removeprefix("/")), parse_qs(url.query)
        if "list-type" in query:
            names = sorted(name for name in self.objects if name.startswith(query.get("prefix", [""])[0]))
            keys = "".join(f"<Contents><Key>{n}</Key><Size>{len(self.objects[n])}</Size><ETag>&quot;{n}&quot;</ETag></Contents>" for n in names)
            return self.answer(200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{keys}</ListBucketResult>".encode())
        data = self.objects[asked]
        part = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if part is None:
            return self.answer(200, data, ETag=f'"{asked}"')
        first, last = int(part[1]), min(int(part[2]), len(data) - 1)
        self.answer(206, data[first : last + 1], **{"ETag": f'"{asked}"', "Content-Range": f"bytes {first}-{last}/{len(data)}"})

    do_HEAD = do_GET
    counting = threading.Lock()

    def expired(self):
        with self.counting:
            if self.token == "first" and "list-type" not in self.path:
                Handler.valid_for -= 1
                if self.valid_for < 0:
                    Handler.token = "second"
            return self.token is not None and self.headers.get("X-Amz-Security-Token") != self.token

    def answer(self, status, body, **headers):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body)), "Accept-Ranges": "bytes"}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            with contextlib.suppress(ConnectionError):  # if a server ended meanwhile
                self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def url():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Handler.objects["ELSEWHERE"] = f"http://localhost:{server.server_port}/c0/00.bin\n".encode()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("kind", ["list", "bucket", "shards", "shards in a bucket"])
def test_open_and_dataset(kind, url, root, monkeypatch):  # noqa: F811
    monkeypatch.setenv("LCACHE_LINGER", "0")
    s3 = {"endpoint_url": url, "region": "eu-test-7", "unsigned": True} if "bucket" in kind else None
    source = {"list": f"{url}/LIST", "bucket": "s3://bucket/", "shards": f"tar:{url}/x.tar", "shards in a bucket": "tar:s3://bucket/x.tar"}[kind]
    flags = {"ext": ".bin"} if kind == "bucket" else {}
    files = {name: FILES[name] for name in sorted(FILES)} if kind == "bucket" else FILES
    labels = [i % 5 for i in range(24)] if kind.startswith("shards") else [int(name[1]) for name in files]
    want = list(zip(files.values(), labels))
    with lcache.open(source, root, s3=s3, recipe="torch.distributed_sampler", batch_size=5, **flags) as job:
        batch = job.get(range(job.samples))
        assert list(zip(map(bytes, batch.samples), batch.labels)) == want
        assert sorted(i for batch in job.epoch(0) for i in batch.indices) == list(range(24))
        data = Dataset(source, cache=root, s3=s3, **flags)
        assert data.job.pid == job.pid
        assert [data[i] for i in range(24)] == want
        got = [x for xs, _ in torch.utils.data.DataLoader(data, batch_size=7, collate_fn=lambda pairs: list(zip(*pairs))) for x in xs]
        assert got == list(files.values())
        data.job.close()


def test_advice_is_in_python(url, root, monkeypatch):  # noqa: F811
    """Errors of the program and of its server about a bucket name the settings of s3=, even after the bucket was listed."""
    monkeypatch.setenv("LCACHE_LINGER", "0")
    monkeypatch.setattr(Handler, "region", "eu-test-8")
    s3 = {"endpoint_url": url, "region": "eu-test-7", "unsigned": True}
    with pytest.raises(lcache.Error, match=r'is in the region eu-test-8, not eu-test-7: give s3=\{"region": "eu-test-8"\} \[LC031\]$'):
        lcache.open("s3://bucket/", root, s3=s3, ext=".bin")
    monkeypatch.setattr(Handler, "region", None)
    with lcache.open("s3://bucket/", root, s3=s3, ext=".bin") as job:
        monkeypatch.setattr(Handler, "denied", True)
        with pytest.raises(lcache.SampleError, match=r'not public: leave out s3=\{"unsigned": True\}, and give credentials') as raised:
            job.get([3])
        assert "--" not in raised.value.cause


def test_lists_of_other_hosts(url, root, tmp_path, monkeypatch):  # noqa: F811
    """A variable allows other hosts, because the function has no argument for it. A directory can be opened in the same program."""
    monkeypatch.setenv("LCACHE_LINGER", "0")
    with pytest.raises(lcache.Error, match="give LCACHE_HTTP_ALLOW_OTHER_HOSTS=true in the environment if that is meant"):
        lcache.open(f"{url}/ELSEWHERE", root)
    monkeypatch.setenv("LCACHE_HTTP_ALLOW_OTHER_HOSTS", "true")
    with lcache.open(f"{url}/ELSEWHERE", root) as job:
        assert bytes(job.get([0]).samples[0]) == FILES["c0/00.bin"]
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.bin").write_bytes(b"local")
    with lcache.open(tmp_path / "files", root) as job:
        assert bytes(job.get([0]).samples[0]) == b"local"


EXPIRED = "the session token has expired: get new credentials .such as by aws sso login., and start again; a server that still runs keeps the environment it was started in: end it by lcache stop"


@pytest.fixture
def session(monkeypatch, tmp_path):
    """session(token) writes a new token to the file of the AWS tools. The token "first" is valid for ten objects."""
    for name in "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE":
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("LCACHE_LINGER", "0")
    monkeypatch.setattr(Handler, "token", "first")
    monkeypatch.setattr(Handler, "valid_for", 10)

    def write(token):
        (tmp_path / "credentials").write_text(f"[default]\naws_access_key_id = KEY\naws_secret_access_key = hush\naws_session_token = {token}\n")

    write("first")
    return write


def epoch(job, seconds=0):
    """Reads and checks epoch 0. If a sample is refused, it starts again, for some seconds."""
    end = time.monotonic() + seconds
    while True:
        try:
            for batch in job.epoch(0):
                assert all(bytes(view) == FILES[name] for view, name in zip(batch.samples, batch.names))
            return
        except lcache.SampleError:
            if time.monotonic() > end:
                raise


def test_token_expires_in_an_epoch(url, root, session):  # noqa: F811
    """The error names the expired token, and the remedy. An open job continues once the tools have written another token."""
    s3 = {"endpoint_url": url, "region": "eu-test-7"}
    with lcache.open("s3://bucket/", root, s3=s3, ext=".bin", recipe="torch.distributed_sampler", batch_size=3) as job:
        with pytest.raises(lcache.SampleError, match=EXPIRED) as error:
            epoch(job)
        assert any(name in str(error.value) for name in FILES) and "hush" not in str(error.value) and "\n" not in str(error.value)
        session("second")
        epoch(job, seconds=30)


def test_token_of_the_environment_expires(url, root, session, monkeypatch):  # noqa: F811
    """A program that is started again with another token can read."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "KEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "first")
    session("second")  # the environment overrides this one

    def opened():
        return lcache.open("s3://bucket/", root, s3={"endpoint_url": url, "region": "eu-test-7"}, ext=".bin", recipe="torch.distributed_sampler", batch_size=3)

    with opened() as job:
        pid = job.pid
        with pytest.raises(lcache.SampleError, match=EXPIRED):
            epoch(job)
    wait_for_end(pid)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "second")
    with opened() as job:
        epoch(job)
