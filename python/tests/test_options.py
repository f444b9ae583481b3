"""The signature of lcache.open has the names, types and defaults of Options. pytorch/test_as_torch.py compares the classes of lcache.torch."""

import dataclasses
import inspect
import pickle

import lcache
from lcache._client.options import Options, arguments


def test_signature():
    _, *keywords, ranges = inspect.signature(lcache.open).parameters.values()
    assert ranges.name == "ranges"  # a source, and no option
    assert [(p.name, p.annotation, p.default) for p in keywords] == [(f.name, f.type, f.default) for f in dataclasses.fields(Options)]
    assert [p.kind for p in keywords] == [inspect.Parameter.POSITIONAL_OR_KEYWORD] + [inspect.Parameter.KEYWORD_ONLY] * (len(keywords) - 1)


def test_of_arguments():
    given = {**dict.fromkeys(f.name for f in dataclasses.fields(Options)), "seed": 0, "drop_last": False, "timeout": 5.0, "source": "/data"}
    options = Options.of(given)
    assert options == Options(seed=0, drop_last=False, timeout=5.0)
    assert (options.ext, options.group, options.flat) == ((), "none", False)  # None stands for the default
    assert options.changed() == {"seed": 0, "drop_last": False, "timeout": 5.0}
    assert "source" not in arguments(given) and arguments(given)["seed"] == 0


def test_pickle():
    """A dataset's pickle has the order's options, and must stay small."""
    options = Options(recipe="torch.randperm", seed=3, params={"a": "1"}, memory="2GB", s3={"region": "x"}, timeout=5.0)
    assert pickle.loads(pickle.dumps(options)) == options
    assert options.of_order() == Options(recipe="torch.randperm", seed=3, params={"a": "1"})
    assert len(pickle.dumps(Options(seed=3))) < len(pickle.dumps(Options())) + 20


def test_order_of_a_cache():
    """If the program gives no order, the cache's own is used. A given recipe replaces all of it."""
    kept = {"recipe": "torch.randperm", "seed": "7", "batch_size": 8, "epochs": 0, "params": {"a": "1"}}
    assert Options(batch_size=4, on_error="skip").with_order(kept) == Options(
        recipe="torch.randperm", seed="7", batch_size=4, params={"a": "1"}, on_error="skip"
    )
    for options, job in ((Options(recipe="none", seed=1), kept), (Options(seed=1), {"recipe": "", "seed": "7"}), (Options(seed=1), {})):
        assert options.with_order(job) == options
