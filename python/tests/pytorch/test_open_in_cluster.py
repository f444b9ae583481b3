"""Servers that lcache.open starts join the cluster that the program asks for. A running server that is not in it is an error."""

import os

import pytest
import realserver
from embedded_servers import folder, root  # noqa: F401

import lcache


@pytest.fixture
def key(tmp_path, monkeypatch):
    """The name of a key file in the working folder. Servers listen on the loopback interface."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LCACHE_LISTEN", "127.0.0.1")
    monkeypatch.delenv("LCACHE_CLUSTER", raising=False)
    with open(os.open("key", os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
        f.write(realserver.lcache_command("cluster", "key").stdout)
    return "key"


def test_arguments(folder, root, key):
    with lcache.open(folder.root, root, cluster="listen", cluster_key=key) as job:
        cluster = job.stats()["cluster"]
        assert cluster["state"] == "alone" and cluster["listen"].startswith("127.0.0.1:") and cluster["label"].startswith("lcache-")
        assert bytes(job.get([5]).samples[0]) == folder.contents[5]
        lcache.open(folder.root, root).close()  # a program that asks for no cluster may use any server
        lcache.open(folder.root, root, cluster="127.0.0.1", cluster_key=key).close()  # the same key, so the same cluster
        with pytest.raises(lcache.ArgumentError, match="in another cluster: it has a key, and the program has no key") as e:
            lcache.open(folder.root, root, cluster="127.0.0.1")
        assert e.value.code == "LC063"


def test_a_server_without_a_cluster(folder, root, key, monkeypatch):
    with lcache.open(folder.root, root) as job:
        lcache.open(folder.root, root, cluster="auto", cluster_key=key).close()  # no launcher names another machine
        with pytest.raises(lcache.ArgumentError, match=rf"\(pid {job.pid}\) that runs already is in no cluster, and the program asks for cluster='node1'"):
            lcache.open(folder.root, root, cluster="node1", cluster_key=key)
        monkeypatch.setenv("LCACHE_CLUSTER", "node1")
        with pytest.raises(lcache.ArgumentError, match=r"is in no cluster.*\[LC063\]"):
            lcache.open(folder.root, root)
        monkeypatch.setenv("LCACHE_SOCKET", os.path.join(job.stats()["cache"]["dirs"][0], "lcache.sock"))
        with pytest.raises(lcache.ArgumentError, match=r"is in no cluster.*\[LC063\]"):
            lcache.open(folder.root)
        lcache.open(folder.root, root, cluster="").close()


def test_a_cluster_needs_a_key(folder, root, key):
    with pytest.raises(lcache.ArgumentError, match=r': cluster="10.0.0.1" needs cluster_key=: make a key with lcache cluster key > FILE'):
        lcache.open(folder.root, root, cluster="10.0.0.1")
    with pytest.raises(lcache.Error, match=r"cluster key: open .*none: no such file"):
        lcache.open(folder.root, root, cluster="10.0.0.1", cluster_key="none")
