"""A batch that is too large for the server is requested in parts. A request that is refused for another reason is not."""

import pytest
from fakeserver import Server, content, error

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "Tensor"):
    pytest.skip("torch is not installed", allow_module_level=True)

import lcache  # noqa: E402
from lcache._client import protocol  # noqa: E402
from lcache.torch import Dataset  # noqa: E402


@pytest.fixture
def refusing(serve, path):
    """refusing(said) returns a dataset whose server answers requests for more than two samples with that ERROR, and the sizes of all requests."""
    jobs = []

    def make(said):
        asked = []

        class Refuses(Server):
            def answer(self, kind, body, mine):
                if kind == protocol.GET:
                    asked.append((len(body) - 16) // 4)
                    if asked[-1] > 2:
                        return error(message="too many samples", **said)
                return super().answer(kind, body, mine)

        serve(Refuses)
        jobs.append(lcache.connect(path, timeout=10))
        return Dataset(job=jobs[-1]), asked

    yield make
    for job in jobs:
        job.close()


@pytest.mark.parametrize("said", [{"kind": "argument"}, {"kind": "argument", "code": "LC008"}], ids=["an older server", "too large"])
def test_parts(refusing, said):
    dataset, asked = refusing(said)
    assert [data for data, _ in dataset.__getitems__([1, 2, 3, 4])] == [content(i) for i in (1, 2, 3, 4)]
    assert asked == [4, 2, 2]


def test_other_reasons(refusing):
    dataset, asked = refusing({"kind": "argument", "code": "LC007"})
    with pytest.raises(lcache.ArgumentError, match="too many samples") as raised:
        dataset.__getitems__([1, 2, 3, 4])
    assert raised.value.code == "LC007" and asked == [4]
