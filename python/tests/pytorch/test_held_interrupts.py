"""Ctrl-C at the moments of check() at which Python would leave a lock locked, or lose the interrupt."""

import pickle
import signal
import subprocess
import sys
import threading

import pytest
from embedded_servers import folder, root  # noqa: F401

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)

import lcache.torch as lt  # noqa: E402
from lcache.torch.held_interrupts import HeldInterrupts  # noqa: E402

# An interrupt within such a function has the effect of one that Python handles on the way into or out of it.
PROGRAM = """
import multiprocessing, os, signal, sys, threading, time
from multiprocessing import process, queues, synchronize
signal.signal(signal.SIGINT, signal.default_int_handler)  # programs that a shell starts in the background ignore SIGINT
import lcache.torch as lt
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter as Iterator

def here(name, further=""):
    if name != moment:
        return
    try:
        os.close(os.open(os.path.join(sys.argv[3], name + further), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.killpg(0, signal.SIGINT)

def entered(self):
    taken = self._lock.__enter__()
    caller = sys._getframe(1)
    if caller.f_code is queues.Queue.put.__code__:
        here("put locks")
        if caller.f_back.f_code is Iterator._mark_worker_as_unavailable.__code__:
            here("worker decodes, and again while workers end", " again")
    return taken

def left(self, *why):
    if sys._getframe(1).f_code is queues.Queue.put.__code__:
        here("put unlocks")
    return self._lock.__exit__(*why)

def asked(self):
    taken = self._lock.__enter__()
    if sys._getframe(1).f_code is synchronize.Event.is_set.__code__:
        here("worker asks whether it shall end")
    return taken

def begun(self, *args, **named):
    here("worker begins")
    return bootstrap(self, *args, **named)

def decode(data, sample):
    here("worker decodes")
    here("worker decodes, and again while workers end")
    time.sleep(600)

threading.Condition.__enter__, threading.Condition.__exit__, synchronize.Condition.__enter__ = entered, left, asked
bootstrap, process.BaseProcess._bootstrap = process.BaseProcess._bootstrap, begun
os.register_at_fork(before=lambda: here("before a fork"), after_in_parent=lambda: here("after a fork"), after_in_child=lambda: here("in a new child"))
dataset = lt.Dataset(sys.argv[1], decode, cache=sys.argv[2])
for moment in sys.argv[4:]:
    try:
        lt.check(dataset, num_workers=2)
    except KeyboardInterrupt:
        handler = signal.getsignal(signal.SIGINT)
        print(moment, len(multiprocessing.active_children()), handler is signal.default_int_handler, flush=True)
"""
MOMENTS = (
    "put locks",
    "put unlocks",
    "worker asks whether it shall end",
    "worker begins",
    "worker decodes",
    "worker decodes, and again while workers end",
    "before a fork",
    "after a fork",
    "in a new child",
)


def test_moments(folder, root, tmp_path):
    """Each interrupt ends the workers, and leaves KeyboardInterrupt and the program's handler. Nothing is printed."""
    command = [sys.executable, "-c", PROGRAM, folder.root, root, tmp_path, *MOMENTS]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    said = []
    limit = threading.Timer(120, process.kill)
    limit.start()
    for line in process.stdout:
        said.append(line)
    errors = process.stderr.read()
    limit.cancel()
    assert process.wait() == 0 and said == [f"{moment} 0 True\n" for moment in MOMENTS], (said, errors)
    assert "Traceback" not in errors and "ignored" not in errors, errors


@pytest.fixture
def handled():
    """SIGINT's handler is the program's own. Returns the list of its calls."""
    calls = []
    before = signal.signal(signal.SIGINT, lambda *args: calls.append(args))
    yield calls
    signal.signal(signal.SIGINT, before)


def test_own_handler(folder, root, handled):
    """A program's handler that does not raise is called, and the check goes on. It has the signal back after it."""
    own = signal.getsignal(signal.SIGINT)
    dataset = lt.Dataset(folder.root, lambda *_: None, cache=root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.utils.data.dataloader._MultiProcessingDataLoaderIter, "__init__", interrupted)
        assert lt.check(dataset, num_workers=2) == [] and len(handled) == 1
    assert signal.getsignal(signal.SIGINT) is own


begin = torch.utils.data.dataloader._MultiProcessingDataLoaderIter.__init__


def interrupted(self, loader):
    signal.raise_signal(signal.SIGINT)
    begin(self, loader)


def test_waiting(handled):
    """An interrupt waits until the release, or until the end of the block."""
    with HeldInterrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        assert handled == []
        interrupts.release()
        assert len(handled) == 1
        signal.raise_signal(signal.SIGINT)
        assert len(handled) == 2
        interrupts.hold()
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert len(handled) == 2
    assert len(handled) == 3


def test_error_and_interrupt():
    """An interrupt takes the place of an error that it may have caused."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), HeldInterrupts():
            signal.raise_signal(signal.SIGINT)
            raise RuntimeError("a worker ended")
    finally:
        signal.signal(signal.SIGINT, before)


def test_two_interrupts():
    """After KeyboardInterrupt, a further interrupt waits, and is dropped at the end of the block."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    waited = []
    try:
        with pytest.raises(KeyboardInterrupt) as raised, HeldInterrupts() as interrupts:
            interrupts.release()
            try:
                signal.raise_signal(signal.SIGINT)
            finally:
                signal.raise_signal(signal.SIGINT)
                waited.append(True)
        assert waited and raised.value.__context__ is None
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_handler_that_sets_another():
    """The first Ctrl-C asks a program to end, and a second one ends it: the handler of the second stays."""
    before = signal.signal(signal.SIGINT, lambda *_: signal.signal(signal.SIGINT, signal.default_int_handler))
    try:
        with HeldInterrupts():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        signal.signal(signal.SIGINT, lambda *_: signal.signal(signal.SIGINT, signal.default_int_handler))
        with HeldInterrupts() as interrupts:
            interrupts.release()
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_without_effect():
    """In another thread, and where SIGINT is ignored, nothing changes."""
    before = signal.getsignal(signal.SIGINT)
    found = []

    def enter():
        with HeldInterrupts():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        enter()
    finally:
        signal.signal(signal.SIGINT, before)
    assert found == [before, signal.SIG_IGN]


def test_copy(handled):
    """A copy in a process that was not forked has its own state."""
    with HeldInterrupts() as interrupts:
        copy = pickle.loads(pickle.dumps(interrupts))
        copy.hold()
        interrupts.release()
        signal.raise_signal(signal.SIGINT)
        assert len(handled) == 1
