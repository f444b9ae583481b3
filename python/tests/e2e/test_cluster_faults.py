"""Machines of a cluster that die, hang and lose each other, with real servers. Whatever happens, each rank gets its order and its bytes, no error that the
source could have prevented, and no wait without an end.

LCACHE_CLUSTER_FAULTS is the number of runs of each fault (default: 2; without it long faults are left out), LCACHE_SEED the seed.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
import realserver
from machines import TIMED, Loopback, Machines, Network, make_key, report
from waits import DEADLINE, until

import lcache

RUNS = int(os.environ.get("LCACHE_CLUSTER_FAULTS", "2"))
long = pytest.mark.skipif("LCACHE_CLUSTER_FAULTS" not in os.environ, reason="takes minutes: make test-faults PARTS=cluster")

pytestmark = pytest.mark.any_io

STEP = 0.004  # seconds of a training step
SAMPLES = 2400 if "LCACHE_CLUSTER_FAULTS" in os.environ else 960
STEPS = SAMPLES // 3 // 8  # of a rank in an epoch
LATE = 1.0  # --peer-timeout


@pytest.fixture(scope="session")
def pictures(trees):
    """72 or 180 MB of samples like photos."""
    r = random.Random(9)
    return realserver.Folder(os.path.join(trees, "pictures"), [r.randrange(40_000, 110_000) for _ in range(SAMPLES)])


@pytest.fixture
def machines(disk, pictures):
    """machines(network, …) starts machines. At the end they stop cleanly, and what is on their disks is right."""
    made = []

    def make(network, count=3, start=True, **job):
        made.append(network)
        job = {"batch_size": 8, "epochs": 1000, "memory": "200MB", "drop_last": True, **job}
        made.append(Machines(pictures, disk, network, count, **job))
        return made[-1].start() if start else made[-1]

    yield make
    try:
        for one in made[1::2]:
            one.require_intact()
            one.stop()
    finally:
        for one in made[1::2]:
            one.kill()
        for one in made[::2]:
            one.close()
    for machine in sum(made[1::2], []):
        found = machine.verify()
        assert (found["corrupt"], found["different"]) == (0, 0), found


def share(machines, machine):
    """The bytes that a machine keeps, as it says itself."""
    (own,) = [p for p in machine.cluster()["peers"] if p["host"] and p["addr"].startswith(machine.address + ":")]
    return own["keep_bytes"]


def test_kills(machines, pictures, draw):
    """kill -9 of a machine at a random point of an epoch: the others go on, and read from the source what it kept, once. It comes back within the grace, and
    nothing of what it kept is read again, unless a machine is so busy that it answers late."""
    cluster = machines(Loopback(), room=0.42)
    cluster.read(0)
    assert pictures.bytes * 0.99 <= cluster.source_bytes() <= pictures.bytes * 1.02
    epoch, waits, again, back = 1, [], [], []
    for _ in range(RUNS):
        victim = draw.choice(cluster)
        others = [machine for machine in cluster if machine is not victim]
        kept, before = share(cluster, victim), [machine.source_bytes() for machine in others]
        waits.append(cluster.read(epoch, at=(victim, draw.randrange(1, STEPS)), then=victim.kill, step=STEP))
        read = sum(machine.source_bytes() for machine in others) - sum(before)
        assert read <= 1.1 * kept, f"{read} bytes were read from the source, and {kept} were kept by the machine that died"
        victim.start()
        back.append(cluster.agree().agreed_after)
        before, late = cluster.source_bytes(), late_samples(cluster)
        cluster.read(epoch + 1)
        read, late = cluster.source_bytes() - before, late_samples(cluster) - late
        again.append(read)
        assert read <= late * max(map(len, pictures.contents)), f"{read} bytes were read, of {kept} that the machine kept; {late} samples were late"
        epoch += 2
    print(f"read from the source after a machine came back: at most {max(again)} of {pictures.bytes} bytes, something in {RUNS - again.count(0)} of {RUNS} epochs")
    assert not TIMED or not any(again), again
    report("longest wait after a kill -9", waits, 0.5)
    report("one roster after a machine came back", back, 5)  # the first one is --cluster of the others: they must find it


def late_samples(machines):
    return sum(p["late_samples"] for machine in machines for p in machine.cluster()["peers"])


def test_survivors_keep_what_a_dead_machine_kept(machines, pictures, draw):
    """After the grace the survivors take the samples of a dead machine: each is read once more, and then never. If a disk is busy, a sample may be kept only
    when it is read again."""
    cluster = machines(Loopback(), serve_flags=["--peer-grace", "2s"])
    cluster.read(0)
    victim = draw.choice(cluster)
    others = [machine for machine in cluster if machine is not victim]
    kept, before = share(cluster, victim), sum(machine.source_bytes() for machine in others)
    victim.kill()
    cluster.agree(others, state="degraded")  # fewer than --expect
    for turn in range(2 if TIMED else 6):
        for machine in others:
            with machine.connect() as job:
                for first in range(0, len(pictures), 32):
                    indices = list(range(first, min(first + 32, len(pictures))))
                    machine.check(job.get(indices), indices)
        read = sum(machine.source_bytes() for machine in others) - before
        assert read <= 1.1 * kept, f"turn {turn}: {read} bytes from the source, and the dead machine kept {kept}"
        before += read
        if read == 0:
            break
    assert read == 0, f"{read} bytes are read from the source after {turn + 1} turns"


@long
def test_all_others_are_gone(machines, pictures):
    """One machine of three goes on alone, in the middle of an epoch."""
    cluster = machines(Loopback(), room=0.42, serve_flags=["--peer-grace", "2s"])
    first, second, third = cluster

    def kill():
        second.kill()
        third.kill()

    cluster.read(0, at=(second, STEPS // 2), then=kill, step=STEP)
    cluster.agree([first], state="alone")
    cluster.read(1, [first])


def test_stopped_machine(machines, draw):
    """SIGSTOP for 3 s: others wait for its samples until it is late, and then read them from the source."""
    cluster = machines(Loopback(), room=0.42)
    cluster.read(0)
    waits = []
    for epoch in range(1, 1 + RUNS):
        victim = draw.choice(cluster)
        goes_on = threading.Timer(3, lambda: victim.send(signal.SIGCONT))

        def stop():
            victim.send(signal.SIGSTOP)
            goes_on.start()

        cluster.read(epoch, at=(victim, draw.randrange(1, STEPS)), then=stop, step=STEP)
        waits.append(max(machine.waited for machine in cluster if machine is not victim))
        goes_on.join()
        cluster.agree()
    report("longest wait beyond --peer-timeout while a machine stands still", [max(0.0, wait - LATE) for wait in waits], 0.5)


def test_source_is_gone(machines, pictures):
    """While the source is away, what a machine that is there holds is served. Everything else is a SampleError, by its deadline. Then the source is back."""
    cluster = machines(Loopback(), room=0.42, on_error="fail")
    cluster.read(0)
    first, second, third = cluster
    third.kill()
    served = failed = 0
    with moved_away(pictures.root):
        with first.connect() as job:
            for index in range(0, len(pictures), 4):
                began = time.monotonic()
                try:
                    first.check(job.get([index]), [index])
                    served += 1
                except lcache.SampleError:
                    failed += 1
                assert time.monotonic() - began < DEADLINE
    print(f"{served} samples were served, and {failed} could not be")
    assert served >= 0.55 * (served + failed) and failed > 0
    with first.connect() as job:
        for index in range(0, len(pictures), 4):
            first.check(job.get([index]), [index])


@contextlib.contextmanager
def moved_away(root):
    """Takes the folders out of a source. A server may hold the source's own folder open."""
    away = root + ".away"
    os.mkdir(away)
    names = os.listdir(root)
    try:
        for name in names:
            os.rename(os.path.join(root, name), os.path.join(away, name))
        yield
    finally:
        for name in os.listdir(away):
            os.rename(os.path.join(away, name), os.path.join(root, name))
        os.rmdir(away)


@long
def test_another_key(machines, disk, pictures):
    """A machine with another key stays alone, both sides count the refusal, and the others notice nothing else."""
    network = Loopback()
    cluster = machines(network, count=2, room=0.6)
    stranger = Machines(pictures, os.path.join(disk, "stranger"), network, 1, ranks=2, key=make_key(os.path.join(disk, "other-key")), batch_size=8, drop_last=True)[0]
    where = stranger.serve_flags.index("--listen")
    stranger.serve_flags[where + 1] = network.address(7)
    stranger.serve_flags[stranger.serve_flags.index("--cluster") + 1] = network.address(0)
    stranger.start()
    try:
        until(lambda: stranger.cluster()["refused"] and any(machine.cluster()["refused"] for machine in cluster), "the refusals")
        assert "key" in stranger.cluster()["refused_reason"] and stranger.cluster()["state"] == "alone"
        stranger.read_all([0], [0])
        cluster.read(0)
        cluster.agree()
    finally:
        stranger.stop()


@long
@pytest.mark.parametrize("port", [7746, 7747])
def test_strangers_on_the_ports(machines, draw, port):
    """Garbage, half of a connection's beginning, huge lengths, and clients that send a byte now and then. Their number does not matter: samples travel meanwhile,
    and the memory is given back."""
    count = 500 * RUNS
    cluster = machines(Loopback(), count=2, room=0.6)
    victim = cluster[0]
    cluster.read(0)
    before = memory(victim)
    finished = subprocess.run([sys.executable, os.path.join(os.path.dirname(__file__), "strangers.py"), victim.address, str(port), str(count), str(draw.randrange(1 << 30))], timeout=600, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    print(finished.stdout.strip())
    cluster.read(1)
    until(lambda: memory(victim) < before + (48 << 20), "the memory of before", pause=0.5)
    until(lambda: sockets(victim) < 40, "the connections to end", seconds=60, pause=0.5)
    cluster.agree()


@pytest.mark.skipif(not TIMED, reason="measures for a minute, on an idle machine: make test-faults PARTS=times")
def test_idle_cost(machines, disk, pictures):
    """A server that is one of three, and has nothing to do, costs little more than the same server alone."""
    cluster = machines(Loopback(), room=0.42)
    alone = Machines(pictures, os.path.join(disk, "alone"), Loopback(), 1, ranks=3, key=cluster.key, room=0.42, batch_size=8, epochs=1000, memory="200MB", drop_last=True)[0]
    alone.serve_flags = []
    alone.start()
    try:
        before = {machine: cpu(machine) for machine in [*cluster, alone]}
        time.sleep(60)  # nothing to wait for: the cost of doing nothing
        used = {machine: (memory(machine), cpu(machine) - before[machine]) for machine in before}
    finally:
        alone.stop()
    print(f"alone: {used[alone][0] / 1e6:.1f} MB, {used[alone][1]:.2f} s of CPU time in a minute")
    for machine in cluster:
        more, time_more = used[machine][0] - used[alone][0], used[machine][1] - used[alone][1]
        print(f"one of three: {more / 1e6:.1f} MB and {time_more:.2f} s more")
        assert more <= 20 << 20 and time_more <= 0.3


def cpu(machine):
    """The CPU time of a server, in seconds."""
    with open(f"/proc/{machine.process.pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(machine):
    with open(f"/proc/{machine.process.pid}/status") as f:
        return sum(int(line.split()[1]) << 10 for line in f if line.startswith("RssAnon"))


def sockets(machine):
    folder = f"/proc/{machine.process.pid}/fd"
    return sum(os.readlink(os.path.join(folder, fd)).startswith("socket") for fd in os.listdir(folder))


# In network namespaces.


@pytest.mark.parametrize("fault, seconds", [("unplug", 3), pytest.param("drop", 40, marks=long), pytest.param("unplug", 20, marks=long)])
def test_lost_link(machines, draw, fault, seconds):
    """A machine's cable is unplugged, or its packets vanish, for less than the grace and for more. All go on, and have one roster within 15 s afterwards."""
    network = Network(3)
    cluster = machines(network, room=0.42, serve_flags=["--peer-grace", "8s"])
    cluster.read(0)
    number = draw.randrange(3)
    began = []

    def cut():
        getattr(network, fault)(number)
        began.append(time.monotonic())

    longest = cluster.read(1, at=(cluster[number], draw.randrange(1, STEPS)), then=cut, step=STEP)
    epoch = 2
    while time.monotonic() < began[0] + seconds:
        longest = max(longest, cluster.read(epoch, step=STEP))
        epoch += 1
    network.heal()
    cluster.agree(seconds=60)
    report("longest wait beyond --peer-timeout without a link", [max(0.0, longest - LATE)], 0.5)
    report("one roster after the link is back", [cluster.agreed_after], 15)
    before = sum(p["in_bytes"] for machine in cluster for p in machine.cluster()["peers"])
    until(lambda: cluster.read(epoch) is not None and sum(p["in_bytes"] for machine in cluster for p in machine.cluster()["peers"]) > before, "samples between the machines")


@long
def test_two_halves(machines):
    """Two halves of a network that don't see each other: each goes on with a roster of its own, and they have one again within 15 s."""
    network = Network(4)
    cluster = machines(network, count=4, room=0.4, serve_flags=["--peer-grace", "3s"])
    cluster.read(0)
    waits = []
    for run in range(3):
        for number in (0, 1):
            network.drop(number, 2, 3)
        for half in (cluster[:2], cluster[2:]):
            cluster.agree(half, state="degraded", seconds=60)
        cluster.read(1 + run)
        network.heal()
        cluster.agree(seconds=60)
        waits.append(cluster.agreed_after)
    report("one roster of two halves", waits, 15)


@long
@pytest.mark.parametrize("fault", ["resets", "slow link"])
def test_bad_link(machines, fault):
    """Connections are reset again and again, or a machine sends at 8 Mbit/s."""
    network = Network(3)
    cluster = machines(network, room=0.42)
    cluster.read(0)
    if fault == "resets":
        network.reset(1, 0.02)
    else:
        network.slow(1, "8mbit")
    for epoch in range(1, 6):
        cluster.read(epoch)
    network.heal()
    cluster.agree()


@long
@pytest.mark.parametrize("fault", ["delay=0.01", "cut=300000", "flip=200000"])
def test_relay(machines, fault):
    """Bytes between machines are late, end in the middle, or are wrong: without encryption only lcache's checksums can see that."""
    network = Network(3)
    cluster = machines(network, room=0.42, serve_flags=["--peer-insecure"])
    cluster.read(0)
    command = [*network.enter(1), sys.executable, os.path.join(os.path.dirname(__file__), "relay.py"), cluster[1].address, "7746", "17746", fault]
    relay = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert relay.stdout.readline() == "ready\n"
        network.redirect(1, 17746)
        network.inside(1, "ss", "-K", "sport", "=", "7746")  # connections of before, if the kernel can end them
        for epoch in range(1, 8):
            cluster.read(epoch)
        print(relay.communicate("end\n", timeout=DEADLINE)[0])
    finally:
        relay.kill()
    network.heal()
    if fault.startswith("flip"):
        cluster.line_is_bad = True
        for machine in (cluster[0], cluster[2]):  # three wrong samples in a minute put a machine aside; samples that were under way may be wrong, too
            state = machine.cluster()
            assert state["corrupt_samples"] >= 3 and [p["state"] for p in state["peers"] if p["host"] and p["addr"].startswith(cluster[1].address + ":")] == ["aside"], state
