"""Invalid input at the socket, other users, and a client that tries to change read-only memory: the server continues to serve others."""

import contextlib
import ctypes
import errno
import faulthandler
import fcntl
import json
import mmap
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys

import pytest
from wire import CHUNK, ERROR, GET, HEADER, HELLO, NAMES, PUSH, RELEASE, STATUS, Wire, frame


pytestmark = pytest.mark.any_io
NOBODY = 65534


@pytest.fixture
def cache(serve, small):
    return serve(small, world=2, epochs=3)


def hello(**changes):
    return json.dumps({"protocol": 1, "client": "by hand", "token": "", **changes}).encode()


FIRST_WORDS = {
    "another version in the header": frame(HELLO, 1, hello(), version=2),
    "another version in the JSON": frame(HELLO, 1, hello(protocol=9)),
    "no JSON": frame(HELLO, 1, b"hello?"),
    "no HELLO": frame(STATUS, 1),
    "text": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "zeros": bytes(64),
    "a length of 4 GB": b"\xff\xff\xff\xff" + frame(HELLO, 1, hello())[4:],
    "a length of nothing": struct.pack("<I", 0) + bytes(8),
    "a huge HELLO": frame(HELLO, 1, hello(client="x" * 70_000)),
    "flags": HEADER.pack(8 + len(hello()), 1, HELLO, 7, 1) + hello(),
}


def test_wrong_first_words(cache):
    """Each gets the reason in one ERROR, and its connection ends. Other readers of an epoch do not notice."""
    expected = cache.batches(0, 0)
    with cache.connect() as job:
        coming = job.epoch(0)
        for number, (what, words) in enumerate(FIRST_WORDS.items()):
            cache.check(next(coming), expected[number])
            with Wire(cache.socket) as wire:
                wire.socket.sendall(words)
                said = wire.error()
            assert said["kind"] == "protocol" and said["message"], what
            if "version" in what:
                assert "1" in said["message"], what
        for number, batch in enumerate(coming, number + 1):
            cache.check(batch, expected[number])
        assert number + 1 == len(expected)


LATER_WORDS = {
    "an unknown type": frame(77, 2),
    "a CHUNK too short": frame(CHUNK, 2, bytes(11)),
    "a CHUNK too long": frame(CHUNK, 2, bytes(13)),
    "a GET of more than it lists": frame(GET, 2, struct.pack("<IIII", 0, 0, 0, 1000)),
    "a GET of 2^32-1": frame(GET, 2, struct.pack("<IIII", 0, 0, 0, 0xFFFFFFFF)),
    "a RELEASE of nothing": frame(RELEASE, 0, b""),
    "a PUSH that does not add up": frame(PUSH, 2, struct.pack("<IIIIIII", 0, 0, 0, 0, 2, 5, 5)),
    "NAMES without names": frame(NAMES, 2, struct.pack("<I", 3)),
    "a second HELLO": frame(HELLO, 2, hello()),
}


def test_wrong_later_words(cache):
    """Only that connection ends. Another one with leases of the same process, and other readers, continue."""
    with cache.connect() as job, Wire(cache.socket).hello() as honest:
        for number, (what, words) in enumerate(LATER_WORDS.items()):
            with Wire(cache.socket).hello() as wire:
                wire.chunk(0, 1, number)
                wire.socket.sendall(words)
                said = wire.error()
            assert said["kind"] == "protocol" and said["message"], what
            assert honest.same(honest.chunk(0, 1, number)[1], cache.folder.contents), what
        cache.read(job, 0, 0)


def test_unknown_indices_and_epochs(cache):
    """An invalid request is answered like any other, and the connection stays."""
    with Wire(cache.socket).hello() as wire:
        for kind, *numbers in ((CHUNK, 0, 99, 0), (CHUNK, 99, 0, 0), (GET, 0, 0, 0, 1, 1 << 30)):
            wire.send(kind, struct.pack(f"<{len(numbers)}I", *numbers))
            answer, said = wire.receive()
            assert answer == ERROR and json.loads(said)["kind"] == "argument", (kind, numbers, said)
        assert wire.same(wire.chunk(0, 0, 0)[1], cache.folder.contents)


def test_garbage_and_halves(cache, draw):
    """Random bytes, valid frames with a few flipped bits, and frames that are cut off at each byte, while others read."""
    true = [frame(HELLO, 1, hello()), frame(CHUNK, 2, struct.pack("<III", 0, 0, 1)), frame(GET, 3, struct.pack("<IIIIII", 0, 0, 0, 2, 1, 2)), frame(STATUS, 4)]
    words = [draw.randbytes(draw.randrange(1, 200)) for _ in range(60)]
    for _ in range(60):
        turned = bytearray(b"".join(true))
        for _ in range(draw.randrange(1, 6)):
            turned[draw.randrange(len(turned))] ^= 1 << draw.randrange(8)
        words.append(bytes(turned))
    whole = b"".join(true)
    words += [whole[:n] for n in range(len(whole))]
    with cache.connect() as job, contextlib.ExitStack() as still_open:
        batches = cache.batches(0, 0)
        for number, batch in enumerate(job.epoch(0)):
            for said in words[number :: len(batches)]:
                with contextlib.ExitStack() as at_once:
                    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                    (at_once, still_open)[len(said) % 2].enter_context(s)
                    s.connect(cache.socket)
                    s.sendall(said)
            cache.check(batch, batches[number])
        cache.read(job, 1, 0)
    assert cache.process.poll() is None
    assert cache.job()["corrupt_samples"] == 0


@pytest.fixture
def nobody(cache):
    """Runs Python code as another user, with all file permissions needed to reach the socket."""
    if os.getuid() != 0:
        pytest.skip("needs root, to become another user")
    if not shutil.which("setpriv"):
        pytest.skip("needs setpriv")

    def run(code):
        command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", sys.executable, "-c", code, cache.socket]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    return run


# A client of another user as one script, because that user may not read the files here. It prints the number of received descriptors, and the data.
ASK = """
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(20)
s.connect(sys.argv[1])
try:
    s.sendall(%r)
except BrokenPipeError:
    pass  # it was refused before it sent anything; the reason can still be read
data, extra = s.recvmsg(1 << 16, 1000)[:2]
print(len(extra), data)
"""


def test_another_user(cache, nobody):
    """Another user is stopped by the file's mode and, if that was opened, by the uid."""
    code = ASK % frame(HELLO, 1, hello())
    refused = nobody(code)
    assert refused.returncode != 0 and "PermissionError" in refused.stderr, refused
    for path in (cache.socket, cache.cache, os.path.dirname(cache.cache)):
        os.chmod(path, 0o777)
    let = nobody(code)
    assert let.returncode == 0, let
    assert let.stdout.startswith("0 ") and '"denied"' in let.stdout and "fingerprint" not in let.stdout
    with cache.connect() as job:
        cache.read(job, 0, 0)


def test_modes_of_files(cache):
    """Only the owner may read the cache's files."""
    assert os.stat(cache.socket).st_mode & 0o777 == 0o600
    assert os.stat(cache.cache).st_mode & 0o077 == 0
    for name in os.listdir(cache.cache):
        assert os.stat(os.path.join(cache.cache, name)).st_mode & 0o077 == 0, name


def test_tampering(cache):
    """A client can't change shared memory: not by writing, mapping, truncating, punching holes, or taking the seals off."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Wire(cache.socket).hello() as wire:
        size = os.fstat(wire.fd).st_size
        _, samples = wire.chunk(0, 0, 0)
        _, offset, length = max(samples, key=lambda s: s[2])
        assert length > 0
        again = f"/proc/self/fd/{wire.fd}"
        refused = {
            "write": lambda: os.pwrite(wire.fd, b"x", offset),
            "map for writing": lambda: mmap.mmap(wire.fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE),
            "shrink": lambda: os.ftruncate(wire.fd, 0),
            "grow": lambda: os.ftruncate(wire.fd, size + 4096),
            "seal": lambda: fcntl.fcntl(wire.fd, 1033, 0),
        }
        for what, attempt in refused.items():
            with pytest.raises(OSError) as e:
                attempt()
            assert e.value.errno in (errno.EPERM, errno.EBADF, errno.EINVAL, errno.EACCES), what
        # Opened again through /proc it may be writable, because its mode is this user's. The seals still hold.
        try:
            fd = os.open(again, os.O_RDWR)
        except OSError as e:
            assert e.errno in (errno.EACCES, errno.EPERM)
        else:
            for attempt in (
                lambda: os.pwrite(fd, b"x", offset),
                lambda: mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE),
                lambda: os.ftruncate(fd, 0),
            ):
                with pytest.raises(OSError):
                    attempt()
            assert libc.fallocate(fd, 3, ctypes.c_long(0), ctypes.c_long(size)) == -1, "a hole was punched"
            os.close(fd)
        assert wire.same(samples, cache.folder.contents)
    with cache.connect() as job:
        cache.read(job, 0, 1)


def test_the_map_of_a_client_is_read_only(cache):
    """The mapped bytes of samples: mprotect refuses to make them writable, and a plain write kills the process."""
    libc = ctypes.CDLL(None, use_errno=True)
    with cache.connect() as job:
        batch = next(job.epoch(0))
        indices = list(batch.indices)
        view = max(batch.samples, key=len)
        base = job._link.session.memory._base
        assert libc.mprotect(ctypes.c_void_p(base), ctypes.c_size_t(4096), 3) == -1
        assert ctypes.get_errno() == errno.EACCES
        pid = os.fork()
        if pid == 0:
            faulthandler.disable()
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            ctypes.memset(base, 1, 1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGSEGV
        with pytest.raises(TypeError):
            view[0] = 1
        cache.check(batch, indices)
