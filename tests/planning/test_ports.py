import pytest

from heterps.planning.ports import Places, Ports, others_beside, places_of
from heterps.planning.profile import Profile
from heterps.planning.replica_queue import Shape
from heterps.planning.service_times import ServiceTimes, Sizes
from heterps.planning.simulate import simulate_stages

MB = 10**6
FIRST, SECOND = (0, 0), (1, 0)
TWO_HOSTS = Places((("a", "a"), ("b",)), ("s",), {"a": MB, "b": MB, "s": MB})


def profile(**types):
    figures = {"compute_s": 1, "comm_s": 0, "alpha": 1, "beta": 1, "transfer_s": 0}
    on = {name: dict(figures) for name in types}
    layer = {"name": "fc", "kind": "fc", "input_bytes": 4, "weight_bytes": 4, "on": on}
    about = {name: {"source": "measured", **own} for name, own in types.items()}
    return Profile.parse({"batch_size": 8, "layers": [layer], "types": about}, "profile")


def test_a_port_carries_one_message_after_the_other():
    ports = Ports(TWO_HOSTS)
    assert ports.between(0.0, 0.5, FIRST, SECOND, MB) == pytest.approx(1.5)
    assert ports.between(0.0, 0.5, (0, 1), SECOND, MB) == pytest.approx(2.5)  # of the same host
    assert ports.to_servers(0.5, 0.5, FIRST, MB) == pytest.approx(3.5)
    assert ports.between(9.0, 0.5, FIRST, SECOND, 0.0) == pytest.approx(9.5)


def test_both_ways_at_once():
    ports = Ports(TWO_HOSTS)
    ports.between(0.0, 0.5, FIRST, SECOND, MB)
    assert ports.between(0.0, 0.5, SECOND, FIRST, MB) == pytest.approx(1.5)


def test_what_comes_from_several_hosts_comes_in_by_one_port():
    ports = Ports(TWO_HOSTS)
    assert ports.between(0.0, 0.5, SECOND, FIRST, MB) == pytest.approx(1.5)
    assert ports.from_servers(0.0, 0.5, FIRST, MB) == pytest.approx(2.5)
    assert ports.from_servers(0.0, 0.5, SECOND, MB) == pytest.approx(2.5)  # behind what left before


def test_servers_on_several_hosts_share_what_is_asked_of_them():
    ports = Ports(Places((("a",),), ("a", "s"), {"a": MB, "s": MB}))
    assert ports.to_servers(0.0, 0.5, FIRST, 2 * MB) == pytest.approx(1.5)  # the other is here


def test_on_one_host_there_is_no_port_and_no_way():
    ports = Ports(Places((("a",), ("a",)), ("a",), {"a": MB}))
    assert ports.between(3.0, 0.5, FIRST, SECOND, MB) == 3.0
    assert ports.to_servers(3.0, 0.5, FIRST, MB) == 3.0


def test_without_places_messages_have_no_size_and_all_are_far():
    ports = Ports(None)
    assert ports.between(3.0, 0.5, FIRST, SECOND, MB) == 3.5
    assert ports.from_servers(3.0, 0.5, FIRST, MB) == 3.5


def test_hosts_are_filled_one_after_the_other_and_others_are_like_the_largest():
    about = {"hosts": {"h": 1, "i": 2}, "servers_on": ["s"], "link_mbps": 8.0}
    found = places_of(profile(cpu=about), [("cpu", 2), ("cpu", 4)])
    assert found.replicas == (("h", "i"), ("i", "another 1", "another 1", "another 2"))
    assert found.servers == ("s",)
    assert set(found.bytes_per_s) == {"h", "i", "another 1", "another 2", "s"}
    assert set(found.bytes_per_s.values()) == {1e6}
    assert found.far


def test_types_may_share_a_host():
    near = {"hosts": {"h": 4}, "servers_on": ["h"]}
    far = {"hosts": {"i": 4}, "servers_on": ["h"], "link_mbps": 8.0}
    known = profile(near=near, near_too=near, far=far)
    together = places_of(known, [("near", 1), ("near_too", 2), ("far", 1)])
    assert together.replicas == (("h",), ("h", "h"), ("i",))
    assert together.bytes_per_s == {"h": 1e6, "i": 1e6}
    assert not Places((("h",), ("h",)), ("i",), {}).far


def test_without_hosts_or_a_link_there_are_no_places():
    hosts = {"hosts": {"h": 4}, "servers_on": ["h"]}
    assert places_of(profile(cpu=hosts), [("cpu", 1)]) is None
    linked = hosts | {"link_mbps": 8.0}
    assert places_of(profile(cpu=linked), [("cpu", 1)])
    assert places_of(profile(cpu=linked, gpu={}), [("cpu", 1), ("gpu", 1)]) is None


def test_units_of_other_stages_are_counted_by_host():
    stages = [("a", 2), ("b", 2), ("a", 1)]
    assert others_beside({}, stages) == [3, 3, 4]
    apart = {"a": {"h": 4}, "b": {"i": 4}}
    assert others_beside(apart, stages) == [1, 0, 2]
    assert others_beside({"a": {"h": 2, "i": 4}, "b": {"i": 4}}, stages) == [0, 1, 2]
    assert others_beside({}, [("a", 4)]) == [0]


def test_units_of_one_host_share_its_port():
    def period(*hosts):
        """Of micro-batches whose activations take a port for a second."""
        sizes = Sizes(on=MB)
        stages = [
            ServiceTimes("cpu", 2, 0.1, 0.1, sizes=sizes),
            ServiceTimes("gpu", 2, 0.1, 0.1),
        ]
        places = Places((hosts, ("x", "y")), (), dict.fromkeys("abxy", MB))
        shape = Shape(16, (2, 2), 4, 2, 40)
        return 4 / simulate_stages(stages, shape, places=places).samples_per_s

    assert period("a", "b") == pytest.approx(2, rel=0.05)
    assert period("a", "a") == pytest.approx(4, rel=0.05)
