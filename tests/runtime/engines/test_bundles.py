import pytest

from heterps.errors import InputError
from heterps.job.resources import ResourceType
from heterps.job.spec import Job
from heterps.runtime.engines.ray.bundles import (
    Bundle,
    Node,
    bundle_of,
    bundles_of,
    lacking,
    limits,
    needed,
    of_others,
)

CPU = {"name": "cpu", "price_per_hour": 0.04, "limit": 8, "threads": 2}
GPU = {"name": "gpu", "price_per_hour": 2.4, "limit": 2, "device": "cuda"}
XPU = {"name": "xpu", "price_per_hour": 1.0, "limit": 1, "device": "xpu"}


def make_job(*types, **settings):
    workload = {"batch_size": 8, "samples_per_epoch": 8, "epochs": 1}
    return Job.parse({"workload": workload, "cluster": {"types": list(types)}, **settings})


def node(host, labels=None, **resources):
    return Node(host, host, {name: float(count) for name, count in resources.items()}, labels or {})


@pytest.mark.parametrize(
    ("entry", "resources"),
    [
        (CPU, {"CPU": 2}),
        (CPU | {"ray": {"num_cpus": 0.5}}, {"CPU": 0.5}),
        (GPU, {"CPU": 1, "GPU": 1}),
        (GPU | {"ray": {"num_gpus": 0.5, "num_cpus": 0}}, {"GPU": 0.5}),
        (XPU | {"ray": {"resources": {"XPU": 1}}}, {"CPU": 1, "XPU": 1}),
    ],
)
def test_what_a_unit_takes(entry, resources):
    assert bundle_of(ResourceType.parse(entry)).resources == resources


def test_a_unit_takes_something():
    entry = ResourceType.parse(CPU | {"ray": {"num_cpus": 0}})
    with pytest.raises(InputError, match=r"cluster\.types\.cpu\.ray: takes nothing of a node"):
        bundle_of(entry)


def test_resources_of_rays_own_names_are_refused():
    with pytest.raises(InputError, match=r"ray\.resources\.GPU: say num_gpus instead"):
        ResourceType.parse(CPU | {"ray": {"resources": {"GPU": 1}}})


def test_one_machine_has_room_for_all_that_the_job_allows():
    job = make_job(CPU, GPU, servers={"count": 3, "threads": 2})
    assert needed(job).resources == {"CPU": 8 * 2 + 2 + 3 * 2, "GPU": 2}


def test_labels_that_one_machine_cannot_have_are_refused():
    zones = [CPU | {"name": z, "ray": {"labels": {"zone": z}}} for z in ("a", "b")]
    with pytest.raises(InputError, match="cannot have both zone=a and zone=b"):
        needed(make_job(*zones))


def test_limits_count_what_the_nodes_hold():
    bundles = bundles_of(make_job(CPU, GPU))
    nodes = [node("a", CPU=5), node("b", CPU=4, GPU=4)]
    assert limits({}, bundles, nodes) == {"cpu": 4, "gpu": 4}
    assert limits({"s": "", "w0": "gpu", "w1": "gpu"}, bundles, nodes) == {"cpu": 3, "gpu": 4}


def test_units_that_are_gone_are_missing_in_the_limits():
    bundles = bundles_of(make_job(CPU))
    wanted = {f"w{n}": "cpu" for n in range(3)}
    assert limits(wanted, bundles, [node("a", CPU=4)]) == {"cpu": 2}


def test_units_stay_on_their_nodes_however_others_would_be_packed():
    types = [{**CPU, "name": f"of{n}", "ray": {"num_cpus": n}} for n in (3, 2)]
    bundles, nodes = bundles_of(make_job(*types)), [node("a", CPU=4), node("b", CPU=6)]
    wanted = {"w0": "of3", "w1": "of3", "w2": "of2", "w3": "of2"}
    at = {"w0": "b", "w1": "b", "w2": "a", "w3": "a"}
    assert limits(wanted, bundles, nodes, at) == {"of3": 2, "of2": 2}
    assert limits(wanted, bundles, nodes)["of3"] + limits(wanted, bundles, nodes)["of2"] == 3


def shared(counts, servers=0):
    """The bundles of types that each take a CPU a unit, and the processes of a stage of each."""
    names = "abc"[: len(counts)]
    bundles = bundles_of(make_job(*(CPU | {"name": name, "threads": 1} for name in names)))
    workers = {
        f"stage-{stage}-replica-{replica}": names[stage]
        for stage, count in enumerate(counts)
        for replica in range(count)
    }
    return bundles, {f"server-{n}": "" for n in range(servers)} | workers


@pytest.mark.parametrize("at", [{}, dict.fromkeys(["stage-0-replica-0", "stage-0-replica-1"], "x")])
def test_what_is_left_of_a_shared_resource_goes_to_all_stages(at):
    bundles, wanted = shared((2, 2))
    assert limits(wanted, bundles, [node("x", CPU=2)], at) == {"a": 1, "b": 1}
    bundles, wanted = shared((4, 2))
    assert limits(wanted, bundles, [node("x", CPU=5)]) == {"a": 3, "b": 2}


def test_servers_have_room_before_the_workers():
    bundles, wanted = shared((2, 2), servers=1)
    assert limits(wanted, bundles, [node("x", CPU=3)]) == {"a": 1, "b": 1}


def test_servers_leave_scarce_resources_to_those_that_need_them():
    job = make_job(XPU | {"ray": {"resources": {"XPU": 1}}})
    wanted = {"server-0": "", **{f"stage-0-replica-{n}": "xpu" for n in range(3)}}
    nodes = [node("a", CPU=2, XPU=2), node("b", CPU=1)]
    assert limits(wanted, bundles_of(job), nodes) == {"xpu": 2}


def test_units_that_find_no_room_beside_the_others_may_when_all_start_anew():
    types = [{**CPU, "name": f"of{n}", "ray": {"num_cpus": n}} for n in (3, 1)]
    bundles, nodes = bundles_of(make_job(*types)), [node("a", CPU=3), node("b", CPU=3)]
    wanted = {"stage-0-replica-0": "of3", "stage-1-replica-0": "of1", "stage-1-replica-1": "of1"}
    at = {"stage-0-replica-0": "gone", "stage-1-replica-0": "a", "stage-1-replica-1": "b"}
    assert limits(wanted, bundles, nodes, at) == {"of3": 1, "of1": 3}


def test_what_others_have_taken_is_not_there():
    found = of_others(node("a", CPU=8, XPU=2, memory=9), {"CPU": 1.0, "XPU": 2.0}, {"CPU": 4.0})
    assert found == {"CPU": 3.0}
    late = of_others(node("a", CPU=8), {"CPU": 8.0}, {"CPU": 4.0})  # what Ray says may be old
    assert late == {}


def test_only_nodes_with_its_labels_hold_a_unit():
    bundle = Bundle({"CPU": 1.0}, {"zone": "a"})
    assert bundle.fits(node("a", {"zone": "a"}, CPU=1))
    assert not bundle.fits(node("b", {"zone": "b"}, CPU=1))


def test_what_is_lacking_is_told_with_what_there_is():
    bundles = bundles_of(make_job(CPU, GPU))
    nodes = [node("10.0.0.1", CPU=4, GPU=1, memory=100), node("10.0.0.2", CPU=2)]
    assert lacking({"w0": "gpu", "w1": "cpu", "server-0": ""}, bundles, nodes) is None
    assert lacking({"w0": "gpu", "w1": "gpu"}, bundles, nodes) == (
        "w1 (a unit of 'gpu', of which the plan has 2) needs CPU 1, GPU 1; "
        "the cluster has 10.0.0.1: CPU 4, GPU 1; 10.0.0.2: CPU 2"
    )


def test_a_label_that_no_node_has_is_told_with_those_that_they_have():
    bundles = bundles_of(make_job(CPU | {"ray": {"num_cpus": 1, "labels": {"rack": "r1"}}}))
    nodes = [node("10.0.0.1", {"rack": "r2", "ray.io/node-id": "ab"}, CPU=8), node("10.0.0.2")]
    assert lacking({"w0": "cpu"}, bundles, nodes) == (
        "w0 (a unit of 'cpu', of which the plan has 1) needs CPU 1, label rack=r1; "
        "the cluster has 10.0.0.1: CPU 8, label rack=r2; 10.0.0.2: nothing"
    )


def test_what_is_lacking_of_what_others_have_left_is_told_with_custom_resources():
    bundles = bundles_of(make_job(XPU | {"ray": {"resources": {"XPU": 1}}}))
    nodes = [node("10.0.0.1", CPU=8), node("10.0.0.2", CPU=2, XPU=2).without({"XPU": 2.0})]
    assert lacking({"w0": "xpu"}, bundles, nodes, "free are") == (
        "w0 (a unit of 'xpu', of which the plan has 1) needs CPU 1, XPU 1; "
        "free are 10.0.0.1: CPU 8; 10.0.0.2: CPU 2, XPU 0"
    )
