"""The properties of a job, from the server, the connection, and the options that the program gave."""

from __future__ import annotations

from ._client.info import Info
from ._client.link import Link
from ._client.options import Options
from ._client.replay import Replay


class Described:
    """The properties of a Job. Each connects to the server if the job is not connected yet."""

    _link: Link
    _rank: int
    _rank_given: bool  # the rank was given; otherwise it counts as 0 until importance() reads the launcher's variables
    _named: Options
    _replay: Replay | None

    @property
    def samples(self) -> int:
        """The number of samples in the dataset."""
        return self.info.samples

    @property
    def epochs(self) -> int:
        """The number of epochs; 0: unknown."""
        return self._named.epochs or self.info.epochs

    @property
    def batch_size(self) -> int:
        """Samples in a batch of one rank; 0: unknown."""
        return self._named.batch_size or self.info.batch_size

    @property
    def classes(self) -> list[str]:
        """The names of the labels: classes[label]."""
        return self.info.classes

    @property
    def fingerprint(self) -> str:
        """The hex hash of the manifest: equal fingerprints mean equal datasets."""
        return self.info.fingerprint

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def source(self) -> str:
        """Where the samples come from: a path or a URL."""
        return self.info.source

    @property
    def world(self) -> int:
        """The number of ranks of the whole job, on all machines."""
        return (self._replay or self.info).world

    @property
    def rank(self) -> int:
        """This process's rank: that given to open(), or that of the launcher's variables. Without either it is 0 until importance() reads the variables."""
        return self._rank

    @property
    def _given_rank(self) -> int | None:
        return self._rank if self._rank_given else None

    @property
    def ranks(self) -> list[int]:
        """The ranks that this server delivers to."""
        return self.info.ranks

    @property
    def drop_last(self) -> bool:
        """Whether an epoch leaves out a last batch that is not full."""
        return (self._replay or self.info).drop_last

    @property
    def recipe(self) -> str:
        """The name of the recipe that the order follows from; "" without one."""
        return (self._replay or self.info).recipe

    @property
    def seed(self) -> str:
        """The order's seed as text, since not every seed fits an int64."""
        return (self._replay or self.info).seed

    @property
    def on_error(self) -> str:
        """The effect of a sample that can't be read: "fail" (a SampleError) or "skip" (a batch without that sample)."""
        return self.info.on_error

    @property
    def token(self) -> str | None:
        """The text that names this job among several on the server, the `id` of its entry in stats()["jobs"]. None: the server's own job."""
        return self._link.token

    @property
    def pid(self) -> int:
        """The pid of the server."""
        return self.info.pid

    # For other modules of lcache.

    @property
    def info(self) -> Info:
        """The server's description of itself at the last connect."""
        return self._link.info

    @property
    def socket(self) -> str:
        """The path of the server's socket."""
        return self._link.path

    @property
    def timeout(self) -> float:
        """The deadline in seconds of every later wait."""
        return self._link.timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self._link.timeout = seconds

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._link.closed
