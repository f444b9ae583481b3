"""Runs programs as forks of one process that has already imported torch and the frameworks, because the imports take as long as most programs.

Each program is a process with its own arguments, environment and output, as if Python had been started with the script.
"""

import multiprocessing
import os
import runpy
import socket
import sys
import tempfile

IMPORTED = ["torch", "torchvision", "lcache.torch", "accelerate", "lightning.pytorch", "transformers.trainer"]  # if installed


class Program:
    def __init__(self, script, *arguments, env=None):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(IMPORTED)
        self._files = [tempfile.NamedTemporaryFile("r+", prefix="lcache-test-") for _ in range(2)]  # its output and its errors
        names = [f.name for f in self._files]
        whole = {**os.environ, "OMP_NUM_THREADS": "1", **(env or {})}
        self._process = context.Process(target=_run, args=(script, [str(a) for a in arguments], whole, *names))
        self._process.start()

    def communicate(self, timeout):
        """Waits for its end, and returns its output and its errors."""
        self._process.join(timeout)
        late = self._process.exitcode is None
        if late:
            self._process.kill()
            self._process.join()
        out, err = (f.read() for f in self._files)
        for f in self._files:
            f.close()
        assert not late, f"has not ended after {timeout} s: {err[-3000:]}"
        return out, err

    @property
    def returncode(self):
        return self._process.exitcode


def start_ranks(world, script, *arguments):
    """A process for each rank, with the variables that torchrun sets. torchrun itself would take as long to start as a rank."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    place = {"WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [Program(script, *arguments, env={k: str(v) for k, v in {**place, "RANK": rank, "LOCAL_RANK": rank}.items()}) for rank in range(world)]


def _run(script, arguments, env, *outputs):
    for fd, path in enumerate(outputs, 1):
        file = os.open(path, os.O_WRONLY)
        os.dup2(file, fd)
        os.close(file)
    os.environ.clear()
    os.environ.update(env)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(int(env["OMP_NUM_THREADS"]))
    multiprocessing.set_start_method(None, force=True)  # it starts its own processes by the default method
    sys.argv = [script, *arguments]
    sys.path.insert(0, os.path.dirname(script))
    runpy.run_path(script, run_name="__main__")
