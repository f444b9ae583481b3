"""Client of an lcache server: training samples in exact shuffle order, read from shared memory without a copy.

    with lcache.connect() as job:
        for epoch in range(job.epochs):
            for batch in job.epoch(epoch, rank=0):
                batch.indices, batch.labels, batch.samples

lcache.open(source) lists a source and starts its server. The package needs Linux and Python's standard library, nothing else.
"""

from ._client.program import program
from .batch import Batch
from .errors import ArgumentError, ConnectionError, DecodeError, Error, FileNotFoundError, ProtocolError, SampleError, TimeoutError
from .job import Job, connect
from .opening import open

__version__ = "0.1.0"
__all__ = [
    "ArgumentError",
    "Batch",
    "ConnectionError",
    "DecodeError",
    "Error",
    "FileNotFoundError",
    "Job",
    "ProtocolError",
    "SampleError",
    "TimeoutError",
    "connect",
    "open",
    "program",
]
