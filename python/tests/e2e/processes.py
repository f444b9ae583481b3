"""The processes of these tests: a server with its own cache, and readers. Each wait has a deadline, and an error that names the awaited event."""

import json
import os
import queue
import subprocess
import sys
import threading

import oracle
import realserver
from waits import DEADLINE

HERE = os.path.dirname(os.path.abspath(__file__))

class Cache(realserver.Server):
    """A cache and the process that serves it, with orders from the oracle."""

    def order(self, epoch, rank):
        return oracle.distributed_sampler(len(self.folder), self.seed, epoch, self.world, rank, self.drop_last)

    def spec(self):
        return {"seed": self.seed, "world": self.world, "batch_size": self.batch_size, "drop_last": self.drop_last}

    def used(self):
        """The bytes of the cache on disk, as du counts them. A journal may be replaced meanwhile."""
        blocks = 0
        for entry in os.scandir(self.cache):
            try:
                blocks += entry.stat(follow_symlinks=False).st_blocks
            except FileNotFoundError:
                pass
        return 512 * blocks

    def room(self, report):
        """The part of the budget that is for samples."""
        return report["budget_bytes"] - report["slack_bytes"] - report["metadata_bytes"]

    def verify(self):
        """Compares every byte in the cache with the source. The server must be stopped."""
        return realserver.lcache_command("verify", "--cache", self.cache, "--against", self.folder.root, "--json", "--quiet").json


class Reader:
    """The parent's side of a reader.py."""

    def __init__(self, cache):
        paths = [os.path.join(realserver.ROOT, "python"), os.environ.get("PYTHONPATH", "")]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p)}
        command = [sys.executable, os.path.join(HERE, "reader.py"), cache.socket, cache.folder.root, json.dumps(cache.spec())]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.pid = self.process.pid
        self._lines = queue.Queue()
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self):
        for line in self.process.stdout:
            self._lines.put(json.loads(line))
        self._lines.put({"error": "the reader is gone"})

    def send(self, do, **arguments):
        """Sends a request; answer() waits for its end."""
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()
        return self

    def line(self, what="a reader"):
        """The next line of the reader, which may be {"at": …}."""
        try:
            said = self._lines.get(timeout=DEADLINE)
        except queue.Empty:
            raise AssertionError(f"waited {DEADLINE:g} s for {what}") from None
        assert "error" not in said, said["error"]
        return said

    def answer(self):
        while True:
            said = self.line()
            if "done" in said:
                return said["done"]

    def ask(self, do, **arguments):
        return self.send(do, **arguments).answer()

    def kill(self):
        self.process.kill()
        self._end()

    def close(self):
        """Ends the reader cleanly: it closes the job, and exits."""
        self.process.stdin.close()
        self._end()
        assert self.process.returncode == 0, f"a reader ended with {self.process.returncode}"

    def _end(self):
        self.process.wait(timeout=DEADLINE)
        self._listener.join(timeout=DEADLINE)
        self.process.stdout.close()
        if not self.process.stdin.closed:
            self.process.stdin.close()


def read_in_processes(readers, first, last):
    """Reads epochs first … last-1, one rank in each reader, in parallel. Returns the number of batches that were read and compared. No rank ends
    before all have begun, as in a training, where ranks wait for each other at every step."""
    for rank, reader in enumerate(readers):
        reader.send("begin", epoch=first, rank=rank)
    for reader in readers:
        reader.answer()
    for rank, reader in enumerate(readers):
        reader.send("epochs", first=first, last=last, rank=rank)
    return sum([reader.answer() for reader in readers])
