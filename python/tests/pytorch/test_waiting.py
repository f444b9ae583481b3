"""The warning about a training loop that waits: it names the reason and the change, comes once, and only if the reason is known."""

import logging
import time

import pytest
from embedded_servers import folder, root  # noqa: F401

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)

import lcache.torch as lt  # noqa: E402
from lcache.torch import epoch_report, waiting  # noqa: E402

NONE = dict(misses_epoch=0, hits_epoch=100, kept_bytes=2e9, dataset_bytes=2e9, epochs_done=[{}, {}])
FROM_SOURCE = {**NONE, "bound_by": "source", "misses_epoch": 60, "hits_epoch": 40}
DECODE = {**NONE, "bound_by": "decode", "decode_seconds": 60.0, "loop_seconds": 50.0, "loop_workers": 2}


@pytest.mark.parametrize(
    "entry, changed, says",
    [
        (DECODE, {"workers": 2}, "with 60 % of the workers' time; change num_workers=2 → 4"),
        (DECODE, {"workers": 2, "loops": 2}, "with 60 % of the workers' time; change num_workers=2 → 4"),
        (DECODE, {"workers": 4, "loops": 2}, "with 60 % of the time of 4 workers on 8 CPUs; more CPUs, smaller samples"),
        ({**DECODE, "loop_workers": 0}, {}, "100 % of the time, in the loop itself; change num_workers=0 → 2"),
        (DECODE, {"workers": 2, "first": 4.0}, "4.0 s of it for the first batch, while the workers started; change persistent_workers=False → True"),
        (DECODE, {"workers": 2, "first": 4.0, "persistent": True}, "decoding is the bottleneck"),
        ({**DECODE, "decode_seconds": 1.0}, {"workers": 2, "first": 4.0, "persistent": True}, None),  # the workers started
        ({**FROM_SOURCE, "kept_bytes": 5e8}, {}, "60 % of the samples came from there, because the cache keeps 0.5 of 2 GB; change budget= to more than 2 GB"),
        (FROM_SOURCE, {"workers": 2, "first": 4.0}, "although the cache keeps all of them; look for lines with !"),
        ({**FROM_SOURCE, "epochs_done": [{}]}, {}, None),  # the epoch that fills the cache
        ({**FROM_SOURCE, "misses_epoch": 1, "hits_epoch": 99}, {}, None),  # the server also judges the epoch before
        ({**NONE, "bound_by": "disk"}, {}, "the disk seems to be the bottleneck (lcache doctor --cache DIR measures it); change to a faster disk"),
        ({**NONE, "bound_by": "disk", "divergences": 12}, {}, "12 requests differ from the planned order"),
        ({**NONE, "bound_by": "peer"}, {}, "the network or the other machines are the bottleneck"),
        ({**NONE, "bound_by": "consumer"}, {}, None),
        ({**NONE, "bound_by": "unknown"}, {}, None),
        ({}, {"workers": 2, "first": 4.0}, None),
    ],
)
def test_advice(monkeypatch, entry, changed, says):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    waits = waiting.Waits(**{"first": 0.1, "total": 5.0, "busy": 5.0, "workers": 0, "persistent": False, "loops": 1, **changed})
    found = waiting.advice(waits, entry)
    assert found is None if says is None else found is not None and says in found, found


def warned(caplog):
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING and "the training loop waited" in r.getMessage()]


def slow(_, sample):
    time.sleep(0.003)
    return sample.index


def test_one_warning(folder, root, caplog, monkeypatch):
    """A slow decoder in the loop's own process: the warning comes once, however many epochs are slow."""
    monkeypatch.setattr(epoch_report, "_LEAST", 0.1)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(4)))
    loader = lt.DataLoader(lt.Dataset(folder.root, slow, cache=root), 16, shuffle=True, seed=1)
    for _ in range(3):
        list(loader)
    (line,) = warned(caplog)
    assert "train: the training loop waited " in line and "% of the time, in the loop itself; change num_workers=0 → 4" in line


def test_no_warning(folder, root, caplog, monkeypatch):
    """Neither for a short epoch, nor for a loop that works longer than it waits."""
    loader = lt.DataLoader(lt.Dataset(folder.root, slow, cache=root), 16)
    list(loader)
    assert warned(caplog) == []
    monkeypatch.setattr(epoch_report, "_LEAST", 0.1)
    report = epoch_report.EpochReport(loader.batch_sampler.order_ahead, loader)
    for waited, count in ((0.9, 0), (1.1, 1)):
        report.loop_wait_seconds, report.busy_seconds = waited, 10.0 - waited
        report._warn({**DECODE}, 10.0)
        assert len(warned(caplog)) == count
