import pytest

from heterps.ps import start_servers
from heterps.ps.client import Client
from heterps.runtime.profiling.links import measure_link
from heterps.runtime.profiling.probe import measured
from heterps.testing.forking import ForkEngine
from heterps.testing.runs import small_job
from heterps.wire.keys import create_key


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
    assert measure_link(job, job.cluster.types[0], ForkEngine) is None
