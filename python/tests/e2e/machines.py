"""Machines of a cluster: real servers, each with a cache and an address of its own. With Network each is in a network namespace, which a test can cut off."""

import itertools
import os
import shutil
import signal
import statistics
import subprocess
import threading
import time

import pytest
import realserver
from processes import Cache
from waits import DEADLINE, until

numbers = itertools.count()

# TIMED: this machine does nothing else, so that times may be asserted. Elsewhere a wait must only end by its deadline.
TIMED = bool(os.environ.get("LCACHE_IDLE"))


class Loopback:
    """Addresses 127.X.Y.2 and so on, which only this test uses."""

    def __init__(self):
        unique = (os.getpid() * 7 + next(numbers)) % (64 << 8)
        self.prefix = f"127.{64 + (unique >> 8)}.{unique & 255}"

    def address(self, number):
        return f"{self.prefix}.{2 + number}"

    def enter(self, number):
        return []

    def close(self):
        pass


class Network:
    """One network namespace for each machine, and one with a bridge between them. Nothing of the machine's own network changes."""

    def __init__(self, count):
        if os.geteuid() != 0:
            pytest.skip("network namespaces need root")
        if missing := [name for name in ("ip", "nsenter", "iptables", "tc") if not shutil.which(name)]:
            pytest.skip(f"network namespaces need {', '.join(missing)}")
        self.name = f"lcache-{os.getpid()}-{next(numbers)}"
        self.count, self.made = count, []
        try:
            self._make()
        except subprocess.CalledProcessError as e:
            self.close()
            pytest.skip(f"no network namespaces: {e.stderr.strip()}")

    def _make(self):
        for name in ["hub", *range(self.count)]:
            run("ip", "netns", "add", f"{self.name}-{name}")
            self.made.append(f"{self.name}-{name}")
            run("ip", "-n", f"{self.name}-{name}", "link", "set", "lo", "up")
        hub = f"{self.name}-hub"
        run("ip", "-n", hub, "link", "add", "hub", "type", "bridge")
        run("ip", "-n", hub, "link", "set", "hub", "up")
        for k in range(self.count):
            run("ip", "-n", hub, "link", "add", f"to{k}", "type", "veth", "peer", "name", "eth0", "netns", f"{self.name}-{k}")
            run("ip", "-n", hub, "link", "set", f"to{k}", "master", "hub", "up")
            run("ip", "-n", f"{self.name}-{k}", "address", "add", f"{self.address(k)}/24", "dev", "eth0")
            run("ip", "-n", f"{self.name}-{k}", "link", "set", "eth0", "up")

    def address(self, number):
        return f"10.77.0.{2 + number}"

    def enter(self, number):
        return ["nsenter", f"--net=/run/netns/{self.name}-{number}"]

    def inside(self, number, *command):
        run(*self.enter(number), *command)

    # What can happen to a machine's network. heal() undoes all of it.

    def unplug(self, number):
        run("ip", "-n", f"{self.name}-{number}", "link", "set", "eth0", "down")

    def drop(self, number, *others):
        """Packets between a machine and others vanish; without others all of its packets do."""
        for other in others or [k for k in range(self.count) if k != number]:
            for chain, side in (("INPUT", "-s"), ("OUTPUT", "-d")):
                self.inside(number, "iptables", "-A", chain, side, self.address(other), "-j", "DROP")

    def reset(self, number, probability):
        """Connections for samples are reset: the part of their packets that probability says."""
        rule = ["-p", "tcp", "--dport", "7746", "-m", "statistic", "--mode", "random", "--probability", str(probability), "-j", "REJECT", "--reject-with", "tcp-reset"]
        self.inside(number, "iptables", "-A", "INPUT", *rule)

    def slow(self, number, rate):
        """What a machine sends is limited, such as to 20mbit."""
        run("tc", "-n", f"{self.name}-{number}", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "64k", "latency", "500ms")

    def redirect(self, number, port):
        """What others send to the port for samples goes to another port of the machine."""
        self.inside(number, "iptables", "-t", "nat", "-A", "PREROUTING", "-p", "tcp", "--dport", "7746", "-j", "REDIRECT", "--to-port", str(port))

    def heal(self):
        for k in range(self.count):
            self.inside(k, "iptables", "-F")
            self.inside(k, "iptables", "-t", "nat", "-F")
            subprocess.run(["tc", "-n", f"{self.name}-{k}", "qdisc", "del", "dev", "eth0", "root"], capture_output=True)
            run("ip", "-n", f"{self.name}-{k}", "link", "set", "eth0", "up")

    def close(self):
        for name in self.made:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def run(*command):
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=DEADLINE)


class Machine(Cache):
    """A machine with one rank of the job."""

    def __init__(self, of, number, folder, disk, **job):
        super().__init__(folder, os.path.join(disk, f"machine{number}"), world=of.world, extra=["--no-prefill", "--ranks", str(number), *of.ingest_flags], **job)
        self.waited = 0.0  # the longest wait for a batch in the last epoch, after something happened
        self.number, self.address = number, of.network.address(number)
        self.prefix, self.log = of.network.enter(number), os.path.join(disk, f"machine{number}.log")
        where = "listen" if number == 0 else of.network.address(0)
        self.serve_flags = ["--cluster", where, "--cluster-key", of.key, "--listen", self.address, *of.serve_flags]

    def cluster(self):
        return self.status()["cluster"]

    def source_bytes(self):
        return self.status()["totals"]["source_bytes"]

    def kill(self):
        process, self.process = self.process, None
        if process:
            process.kill()
            process.wait(timeout=DEADLINE)
            process.stdout.close()

    def send(self, number):
        os.kill(self.process.pid, number)


class Machines(list):
    """Servers of one dataset on several machines. Each has room for a part of it."""

    def __init__(self, folder, disk, network, count=3, room=None, ranks=None, expect=None, ingest_flags=(), serve_flags=(), key=None, **job):
        self.folder, self.disk, self.network, self.world = folder, disk, network, ranks or count
        self.line_is_bad = False  # bits are flipped between the machines
        os.makedirs(disk, exist_ok=True)
        self.key = key or make_key(os.path.join(disk, "key"))
        self.ingest_flags, self.serve_flags = list(ingest_flags), ["--expect", str(expect or count), *serve_flags]
        budget = int(room * folder.bytes) + (4 << 20) if room else None
        for number in range(count):
            self.append(Machine(self, number, folder, disk, budget=budget, **job))
            self[-1].ingest()

    def start(self):
        for machine in self:
            machine.launch()
        for machine in self:
            machine.ready()
        return self.agree()

    def agree(self, among=None, state="ok", seconds=DEADLINE):
        """Waits until machines have one roster, of just these machines, and each knows the processes that the others are now."""
        among = among or self

        def agreed():
            seen = [machine.cluster() for machine in among]
            now = {one["peers"][0]["member"] for one in seen if one["peers"]}
            return len({one["roster"] for one in seen}) == 1 and all(one["state"] == state and now == {p["member"] for p in one["peers"] if p["in_roster"]} for one in seen)

        began = time.monotonic()
        until(agreed, f"one roster of {len(among)}", seconds, pause=0.1)
        self.agreed_after = time.monotonic() - began
        return self

    def source_bytes(self):
        return sum(machine.source_bytes() for machine in self if machine.process)

    def read(self, epoch, machines=None, at=None, then=None, step=0.0):
        """Reads an epoch with the ranks of some machines at once, and checks everything. at=(machine, batch): there then() is called. A rank ends with its server
        if then() kills it. step is the time of a training step. Returns the longest wait for a batch after that."""
        happened = threading.Event()
        machines = machines or self
        for machine in machines:
            machine.waited = 0.0

        def rank(machine):
            expected, number = machine.batches(epoch, machine.number), 0
            with machine.connect() as job:
                began = time.monotonic()
                for batch in job.epoch(epoch, rank=machine.number):
                    if happened.is_set():
                        machine.waited = max(machine.waited, time.monotonic() - began)
                    machine.check(batch, expected[number])
                    number += 1
                    if at == (machine, number):
                        happened.set()
                        then()
                    if machine.process is None:
                        return
                    time.sleep(step)
                    began = time.monotonic()
            assert number == len(expected), f"epoch {epoch} of machine {machine.number} ended after {number} of {len(expected)} batches"

        realserver.together(*((rank, machine) for machine in machines))
        return max(machine.waited for machine in machines)

    def require_intact(self):
        """Asserts that no server found wrong bytes on its disk, or between machines, and that each is within its budget."""
        for machine in self:
            if machine.process:
                status = machine.status()
                assert status["totals"]["corrupt_samples"] == 0, status
                assert self.line_is_bad or status["cluster"]["corrupt_samples"] == 0, status
                assert machine.used() <= (machine.budget or machine.used()), "over its budget"

    def stop(self):
        for machine in self:
            if machine.process:
                machine.send(signal.SIGCONT)
        for machine in self:
            machine.stop()

    def kill(self):
        for machine in self:
            machine.kill()


def make_key(path):
    with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
        f.write(realserver.lcache_command("cluster", "key").stdout)
    return path


def report(what, seconds, most):
    """Prints the median and the worst of some times. On an idle machine the worst is bounded."""
    print(f"{what}: median {statistics.median(seconds):.2f} s, worst {max(seconds):.2f} s of {len(seconds)} (limit {most:g} s)")
    assert not TIMED or max(seconds) <= most, f"{what} took {max(seconds):.2f} s"
