"""The cluster that a program asks for: arguments, variables, and running servers that are in another one."""

import os

import pytest

from lcache import ArgumentError
from lcache._client import clusters
from lcache._client.clusters import Cluster
from lcache._client.program_errors import in_python

LAUNCHERS = ("MASTER_ADDR", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST")


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in (clusters.WHERE, clusters.KEY, *LAUNCHERS):
        monkeypatch.delenv(name, raising=False)


def test_arguments_are_before_the_environment(monkeypatch, tmp_path):
    assert Cluster.of(None, None) == ("", "")
    monkeypatch.setenv(clusters.WHERE, "auto")
    monkeypatch.setenv(clusters.KEY, "/keys/a")
    monkeypatch.chdir(tmp_path)
    assert Cluster.of(None, None) == ("auto", "/keys/a")
    assert Cluster.of("node1", "b") == ("node1", str(tmp_path / "b"))
    assert Cluster.of("node1", "~/b") == ("node1", os.path.expanduser("~/b"))
    assert Cluster.of("", None) == ("", "/keys/a")  # which the program ignores without a cluster
    with pytest.raises(ArgumentError, match=r"cluster_key='b' needs cluster="):
        Cluster.of("", "b")
    with pytest.raises(ArgumentError, match=r"cluster=\['node1'\]: give a text"):
        Cluster.of(["node1"], None)


def test_the_server_gets_absolute_paths(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    env = {"LCACHE_CLUSTER_KEY": "a", "LCACHE_TLS_CA": "/b", "LCACHE_TLS_KEY": "", "OTHER": "c"}
    assert clusters.absolute_paths(env) == {**env, "LCACHE_CLUSTER_KEY": str(tmp_path / "a")}


@pytest.mark.parametrize(
    "env, several",
    [
        ({}, False),
        ({"MASTER_ADDR": "a", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"}, False),
        ({"MASTER_ADDR": "a", "WORLD_SIZE": "8"}, False),
        ({"MASTER_ADDR": "a", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}, True),
        ({"SLURM_JOB_NODELIST": "n[1-4]"}, False),  # a batch script
        ({"SLURM_JOB_NODELIST": "n[1-4]", "SLURM_STEP_ID": "0"}, True),
        ({"SLURM_JOB_NODELIST": "n[1-4]", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n1"}, False),
        ({"SLURM_STEP_NODELIST": "n1,m1"}, True),
        ({"SLURM_STEP_NODELIST": "n[1,7]"}, True),
        ({"SLURM_STEP_NODELIST": "gpu-1"}, False),
    ],
)
def test_auto_asks_for_others_if_the_launcher_names_some(monkeypatch, env, several):
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert Cluster("auto", "").has_others() is several
    assert Cluster("node1", "").has_others() and not Cluster("", "").has_others()


def test_the_label_is_that_of_the_program(tmp_path):
    """The text is what TestLabel of internal/cluster expects, too."""
    key = tmp_path / "key"
    key.write_text("00" * 31 + "01\n")
    assert Cluster("auto", str(key)).label() == "lcache-M2Qj08aMV4cDMQK8"
    key.write_text("no key")
    assert Cluster("auto", str(key)).label() is None
    assert Cluster("auto", str(tmp_path / "none")).label() is None
    assert Cluster("auto", "").label() == ""


def test_a_server_in_another_cluster(tmp_path):
    key = tmp_path / "key"
    key.write_text("00" * 31 + "01\n")
    asked = Cluster("node1", str(key))
    asked.require({"cluster": {"state": "alone", "label": asked.label()}}, 7)
    for stats in ({}, {"cluster": {"state": "off"}}):
        with pytest.raises(ArgumentError, match=r"pid 7\) that runs already is in no cluster, and the program asks for cluster='node1'.*lcache stop 7.*\[LC063\]$") as e:
            asked.require(stats, 7)
        assert e.value.code == "LC063"
    for stats, theirs in (({"label": "lcache-x", "state": "ok"}, "a key"), ({"state": "ok"}, "no key")):
        with pytest.raises(ArgumentError, match=rf"in another cluster: it has {theirs}, and the program has {key}"):
            asked.require({"cluster": stats}, 7)
    Cluster("node1", str(tmp_path / "none")).require({"cluster": {"state": "ok"}}, 7)  # the key can't be compared


def test_messages_name_the_arguments():
    said = "--cluster node1 needs --cluster-key: make a key with lcache cluster key > FILE, and copy it to all machines"
    assert in_python(said) == 'cluster="node1" needs cluster_key=: make a key with lcache cluster key > FILE, and copy it to all machines'


def test_auto_without_other_machines_is_one_warning(monkeypatch, caplog):
    for name in ("SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "MASTER_ADDR", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for where, warnings in (("auto", 1), ("node1", 0), ("", 0)):
        caplog.clear()
        Cluster(where, "").warn_if_alone()
        assert len(caplog.records) == warnings, where
    monkeypatch.setenv("MASTER_ADDR", "node1")
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    caplog.clear()
    Cluster("auto", "").warn_if_alone()
    assert not caplog.records
