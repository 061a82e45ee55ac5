from pathlib import Path

from heterps.runtime.engines.base import Site
from heterps.runtime.specs import Sites, nearest

BOTH = ["ipc:///run/s", "tcp://10.0.0.1:5000"]
RUN, NODE = Path("/run"), Path("/node")


def sites(*hosts):
    of = {f"stage-{n}-replica-0": Site(host, NODE) for n, host in enumerate(hosts)}
    return Sites("10.0.0.1", RUN, RUN / "sockets", of)


def test_a_unix_socket_serves_one_host_and_tcp_the_others():
    assert nearest(BOTH, near=True) == BOTH[0]
    assert nearest(BOTH, near=False) == BOTH[1]
    assert nearest(BOTH[1:], near=True) == BOTH[1]


def test_processes_of_one_host_listen_on_unix_sockets_alone():
    found = sites("10.0.0.1", "10.0.0.1")
    assert not found.span_hosts
    assert found.control() == ["ipc:///run/sockets/control"]
    assert found.listen("stage-1-replica-0") == ["ipc:///node/1.0"]


def test_processes_of_several_hosts_listen_on_both_and_know_who_is_near():
    found = sites("10.0.0.1", "10.0.0.2")
    assert found.listen("stage-1-replica-0") == ["ipc:///node/1.0", "tcp://10.0.0.2:*"]
    assert found.near("stage-0-replica-0")
    assert not found.near("stage-0-replica-0", "stage-1-replica-0")
