"""Compares two listings of a source. The Go implementation runs the same cases."""

import json
import os

import pytest

from lcache._client import buckets
from lcache._client.environment import offered_sockets
from lcache._client.info import Info
from lcache._client.match import HeldListing, Listing, difference, identity
from lcache._client.options import Options
from lcache._client.replay import replay_for
from lcache.errors import ArgumentError

with open(os.path.join(os.path.dirname(__file__), "../../testdata/listings.json")) as f:
    CASES = json.load(f)["cases"]


@pytest.mark.parametrize("case", CASES, ids=[case["why"] for case in CASES])
def test_difference(case, tmp_path):
    named = Listing.of(tmp_path, **case["named"])
    said = {**case["made"], "identity": identity(str(tmp_path)), "extensions": case["files"]}
    assert (difference(named, HeldListing.of_server("/another/name", said)) == "") == case["same"]
    job = {**case["made"], "exts": case["made"].get("ext"), "source": str(tmp_path), "extensions": {"files": case["files"]}}
    assert (difference(named, HeldListing.of_job_file(job)) == "") == case["same"]


def test_sources(tmp_path):
    for name in "a", "b":
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("a")
    a = HeldListing.of_server("/mnt/a", {"identity": identity(str(tmp_path / "a"))})
    assert difference(Listing.of(tmp_path / "a"), a) == difference(Listing.of(tmp_path / "link"), a) == ""
    assert difference(Listing.of(tmp_path / "b"), a) == difference(Listing.of(tmp_path / "gone"), a) == "the source"
    # A name that now leads to another directory.
    assert difference(Listing.of(tmp_path / "a"), HeldListing.of_server(str(tmp_path / "a"), {"identity": "1:2"})) == "the source"
    tar = HeldListing.of_server("tar:/d/{0..9}.tar", {"identity": "tar:/d/{0..9}.tar"})
    assert difference(Listing.of("tar:/d//{0..9}.tar"), tar) == "" and difference(Listing.of("tar:/d/{0..8}.tar"), tar) == "the source"
    assert Listing.of("tar:d/{a,b}.tar").source == f"tar:{os.getcwd()}/d/{{a,b}}.tar" and Listing.of("tar:s3://b/x.tar").source == "tar:s3://b/x.tar"
    s3 = HeldListing.of_server("s3://bucket/a", {"identity": "s3://bucket/a"})
    same = {"s3://bucket": "s3://bucket/", "s3://bucket//": "s3://bucket/", "s3://bucket/a": "s3://bucket/a/", "s3://bucket//a//": "s3://bucket//a/"}  # a key may begin with a slash
    assert {name: Listing.of(name).source for name in same} == same
    assert difference(Listing.of("s3://bucket/a"), s3) == "" and difference(Listing.of("s3://bucket/b"), s3) == "the source"


@pytest.mark.parametrize(
    "source, said",
    [
        ("https://me:hush@host/list", "open source https://host/list: it has a user or a password: "),
        ("tar:https://me:hush@host/{a,b}.tar", "open source tar:https://host/{a,b}.tar: it has a user or a password: "),
        ("s3://me:hush@b/p?x", "open source s3://b/p: it has a user or a password: "),
        ("s3://b/p?sig=hush", "open source s3://b/p: it has a query: "),
        ("ftp://host/x?sig=hush#x", "open source ftp://host/x: it has a query: "),
        ("http://host/list#hush", "open source http://host/list: it has a fragment (#): "),
        ("s3://KEY:hush/hush@b/p", "open source s3://b/p: it has a user or a password: "),
        ("s3://KEY:hush?hush@b/p", "open source s3://b/p: it has a user or a password: "),
        ("tar:s3://KEY:hush/hush", "open source tar:s3://KEY: it has a user or a password: "),
        ("https://host/a@b/list", ""),
        ("https://host:8080/a@b/list", ""),
        ("https://[::1]:8080/list", ""),
        ("s3://b/a#1@2/", ""),
    ],
)
def test_secrets_in_an_address(source, said):
    if not said:
        assert Listing.of(source).source == source
        return
    with pytest.raises(ArgumentError) as error:
        Listing.of(source)
    assert str(error.value).startswith(said) and "hush" not in str(error.value)


def test_links():
    here = {"identity": identity("/"), "outside_links": 3}
    assert difference(Listing.of("/", follow_links=False), HeldListing.of_server("/", here)) == "follow_links, by which 3 samples were found outside the source"
    assert difference(Listing.of("/"), HeldListing.of_server("/", here)) == ""


def test_sockets_of_the_environment():
    env = {"LCACHE_SOCKET_VAL": "/v", "LCACHE_SOCKET": "/t", "LCACHE_SOCKET_TRAIN": "/t", "LCACHE_SOCKET_MODE": "0660", "LCACHE_SOCKET_GROUP": "ml",
           "LCACHE_SOCKET_NONE": "", "LCACHE_" + "SOCKETS": "/no"}
    assert offered_sockets(env) == {"LCACHE_SOCKET": "/t", "LCACHE_SOCKET_VAL": "/v"}


def info(**more):
    said = {"pid": 4711, "server": "s", "token": "t", "name": "n", "source": "/data", "fingerprint": "f", "samples": 100, "epochs": 0, "batch_size": 8, "world": 1, "ranks": [0],
            "drop_last": False, "recipe": "torch.randperm", "seed": "0", "classes": None, "credit_bytes": 1, "version": "1", "features": [], "params": None, "listing": None}
    return Info.of({**said, **more})


@pytest.mark.parametrize(
    "named, server, differs",
    [
        (Options(), {}, None),
        (Options(recipe="torch.randperm", seed=0, batch_size=8), {}, None),
        (Options(recipe="torch.randperm", seed=1), {}, "seed='1', where it has '0'"),
        (Options(seed=1), {}, "seed='1', where it has '0'"),
        (Options(seed=1), {"recipe": ""}, None),
        (Options(batch_size=4), {}, "batch_size=4, where it has 8"),
        (Options(batch_size=4), {"recipe": ""}, None),
        (Options(drop_last=True), {}, "drop_last=True, where it has False"),
        (Options(recipe="torch.randperm", seed=0), {"drop_last": True}, "drop_last=False, where it has True"),
        (Options(), {"drop_last": True, "params": {"a": "1"}}, None),
        (Options(recipe="x", seed=0, params={"n": "2"}), {"recipe": ""}, "recipe='x', where it has '', seed='0', where it has '', params={'n': '2'}, where it has {}"),
    ],
)
def test_an_order_of_its_own(named, server, differs):
    """Also for a server without a recipe, which has neither a seed nor a world size."""
    server = {**({"seed": "", "world": 0} if server.get("recipe") == "" else {"seed": "0"}), **server}
    replay = replay_for(named, info(**server), 1, lambda: "lcache")
    assert (replay and replay.differs) == differs and (replay is None or replay.world == 1)


def test_a_server_without_a_recipe_accepts_any_world_size():
    """`lcache run` under srun knows one task of each machine, and each task may start several ranks."""
    replay = replay_for(Options(recipe="torch.randperm", seed=0), info(recipe="", seed="", world=4, ranks=[1]), 32, lambda: "lcache")
    assert replay is not None and replay.world == 32


@pytest.mark.parametrize(
    "named, server, world, message",
    [
        (Options(on_error="fail"), {"on_error": "skip"}, 1, "on_error='fail'.* has on_error='skip'"),
        (Options(recipe="torch.randperm"), {}, 4, "world_size=4.* has world_size=1"),
        (Options(world_size=4), {}, 4, "world_size=4.* has world_size=1"),
        (Options(epochs=90), {"epochs": 3}, 1, "epochs=90.* has epochs=3"),
        (Options(recipe="x", seed=1), {"batch_size": 0}, 1, "needs a batch size"),
        (Options(params={"split_batches": "true"}), {}, 1, "split_batches"),
    ],
)
def test_refused_options(named, server, world, message):
    with pytest.raises(ArgumentError, match=message):
        replay_for(named, info(**server), world, lambda: "lcache")


def test_buckets(monkeypatch):
    for name in "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS":
        monkeypatch.delenv(name, raising=False)
    here, there = Listing.of("s3://bucket/a", endpoint="http://here"), Listing.of("s3://bucket/a/")
    assert here.source == there.source == "s3://bucket/a/" and here.flags() == ["--s3-endpoint-url=http://here"] and there.flags() == []
    held = HeldListing.of_job_file({"source": "s3://bucket/a/", "remote": {"s3": {"endpoint_url": "http://here"}}})
    served = HeldListing.of_server("s3://bucket/a/", {"identity": "s3://bucket/a/", "s3_endpoint": "http://elsewhere"})
    assert difference(here, held) == "" and difference(there, held) == ""  # a program that gives nothing accepts any value
    assert difference(here, served) == "the source"

    assert buckets.endpoint("s3://b/a", None) == "" and buckets.endpoint("s3://b/a", {"endpoint_url": "http://x/"}) == "http://x"
    for given, plain in [
        ("HTTPS://Given:443", "https://given"),
        ("http://given:80/Path/", "http://given/Path"),
        ("http://[::1]:80", "http://[::1]"),
        ("http://given:443", "http://given:443"),
        ("https://given:80", "https://given:80"),
        ("given:9000", "given:9000"),  # ingest refuses it
    ]:
        assert buckets.endpoint("s3://b/a", {"endpoint_url": given}) == plain
    kept = HeldListing.of_job_file({"source": "s3://bucket/a/", "remote": {"s3": {"endpoint_url": "http://here:80"}}})
    assert difference(here, kept) == ""  # an older program stored it as given
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://env")
    assert buckets.endpoint("s3://b/a", None) == "http://env" and buckets.endpoint("/data", None) == ""
    given = {"region": "eu-1", "profile": "p", "path_style": True, "unsigned": False, "requester_pays": True, "endpoint_url": "http://x"}
    assert buckets.flags("s3://b/a", given) == ["--s3-region=eu-1", "--s3-profile=p", "--s3-path-style", "--s3-requester-pays"]
    for source, wrong in ("s3://b/a", {"regoin": "eu"}), ("s3://b/a", {"region": 1}), ("s3://b/a", {"unsigned": "no"}), ("/data", {"region": "eu"}):
        with pytest.raises(ArgumentError, match="s3="):
            buckets.flags(source, wrong)
