import pytest

from heterps.errors import NoRoomError
from heterps.ps import start_servers
from heterps.ps.client import Client
from heterps.runtime.engines.base import Site
from heterps.runtime.profiling.links import Link, Neighbours, find_neighbours
from heterps.runtime.profiling.probe import measured
from heterps.testing.forking import ForkEngine
from heterps.testing.runs import TYPE, small_job
from heterps.wire.keys import create_key

UNIT = {"name": TYPE, "price_per_hour": 0.01, "limit": 4}


@pytest.mark.slow
def test_the_way_to_servers_has_a_length_and_a_width(tmp_path):
    key = create_key(tmp_path)
    with (
        start_servers(tmp_path, 2) as servers,
        Client([server.address for server in servers], key) as client,
    ):
        found = measured(client)
        held = [shard["tensors"] for shard in client.stats()]
    assert found["ms"] > 0
    assert found["mbps"] > 0
    assert all(len(tensors) == 1 for tensors in held)


def test_on_one_host_there_is_no_way_to_measure(tmp_path):
    job = small_job(tmp_path, "ctrdnn")
    found = find_neighbours(job, job.cluster.types[0], ForkEngine)
    assert found == Neighbours({"127.0.0.1": 1}, ("127.0.0.1",), None)


class Cluster(ForkEngine):
    """Where there is room for a server and ``room`` units of the type, of which two fit a host."""

    room = 5

    def limits(self, units):
        return {TYPE: 5}

    def place(self, units):
        if len(units) > 1 + self.room:
            raise NoRoomError("cluster", "is full")
        hosts = [self.host, "x", "x", "y", "y", "z"]
        return {name: Site(host, self.folder) for name, host in zip(units, hosts, strict=False)}


class TakenCluster(Cluster):
    room = 1


@pytest.mark.parametrize(
    ("engine", "hosts"), [(Cluster, {"x": 2, "y": 2}), (TakenCluster, {"x": 1})]
)
def test_hosts_are_those_on_which_as_many_units_as_there_may_be_have_room(
    tmp_path, monkeypatch, engine, hosts
):
    monkeypatch.setattr("heterps.runtime.profiling.links._probed", lambda *_: Link(20.0, 1000.0))
    job = small_job(tmp_path, "ctrdnn", cluster__types=[UNIT])
    found = find_neighbours(job, job.cluster.types[0], engine)
    assert found == Neighbours(hosts, (engine.host,), Link(20.0, 1000.0))
    assert found.as_document() == {
        "hosts": hosts, "servers_on": [engine.host], "link_ms": 20.0, "link_mbps": 1000.0,
    }  # fmt: skip
