"""What is refused, and by which path."""

import math
from copy import deepcopy

import pytest

from heterps.errors import InputError, UnknownNameError
from heterps.job.spec import Job
from heterps.planning.problem import Problem
from heterps.testing.tiny import plain_problem

DOCUMENT = plain_problem().as_document()
DELETED = object()
NAN, INFINITY = math.nan, math.inf
ON = "profile.layers.1.on.cpu"


def changed(path, value):
    document = deepcopy(DOCUMENT)
    *parents, last = (int(part) if part.isdigit() else part for part in path.split("."))
    at = document
    for part in parents:
        at = at[part]
    if value is DELETED:
        del at[last]
    else:
        at[last] = value
    return document


def written(path):
    """``cluster.types.0.limit`` as messages write it: ``cluster.types[0].limit``."""
    return "".join(f"[{p}]" if p.isdigit() else f".{p}" for p in path.split(".")).lstrip(".")


REQUIRED = (
    "cluster",
    "cluster.types",
    "cluster.types.0.name",
    "cluster.types.0.price_per_hour",
    "cluster.types.0.limit",
    "profile",
    "profile.batch_size",
    "profile.layers",
    "profile.layers.1.name",
    "profile.layers.1.kind",
    "profile.layers.1.input_bytes",
    "profile.layers.1.weight_bytes",
    "profile.layers.1.on",
    f"{ON}.compute_s",
    f"{ON}.comm_s",
    f"{ON}.alpha",
    f"{ON}.beta",
    f"{ON}.transfer_s",
    "workload",
    "workload.batch_size",
    "workload.samples_per_epoch",
    "workload.epochs",
)
AMOUNTS = (
    "cluster.types.1.price_per_hour",
    "cluster.types.1.limit",
    "cluster.types.1.memory_gib",
    "profile.layers.1.input_bytes",
    "profile.layers.1.weight_bytes",
    f"{ON}.compute_s",
    f"{ON}.comm_s",
    f"{ON}.alpha",
    f"{ON}.beta",
    f"{ON}.transfer_s",
    f"{ON}.sync_s",
    "workload.samples_per_epoch",
    "workload.epochs",
    "workload.min_throughput",
    "workload.overhead_per_hour",
    "workload.batch_size",
    "profile.batch_size",
)


@pytest.mark.parametrize("path", REQUIRED)
def test_a_missing_key_is_refused(path):
    with pytest.raises(InputError) as caught:
        Problem.parse(changed(path, DELETED))
    assert str(caught.value) == f"{written(path)}: is missing"


@pytest.mark.parametrize("value", [-1, NAN, INFINITY, -INFINITY, 10**400, "1", True, [1]])
@pytest.mark.parametrize("path", AMOUNTS)
def test_what_is_not_a_finite_number_from_0_up_is_refused(path, value):
    with pytest.raises(InputError) as caught:
        Problem.parse(changed(path, value))
    assert caught.value.path == written(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"{ON}.alpha", 1.0000001),
        (f"{ON}.beta", 2),
        ("profile.batch_size", 0),
        ("profile.batch_size", 0.5),
        ("workload.batch_size", 0),
        ("workload.batch_size", 1.5),
        ("workload.batch_size", 1e300),
        ("cluster.types.0.limit", 2.5),
        ("cluster.types.0.limit", None),
        ("cluster.types.0.limit", 1e30),
        ("cluster.types.0.name", ""),
        ("cluster.types.0.name", 3),
        ("cluster.types.0", 3),
        ("cluster.types", []),
        ("cluster.types", {"cpu": {}}),
        ("cluster", []),
        ("profile.layers", []),
        ("profile.layers.1.kind", 3),
        ("profile.layers.1.on", ["cpu"]),
        (ON, None),
        (f"{ON}.compute_s", 1e300),
        (f"{ON}.compute_s", 1e-300),
    ],
)
def test_a_value_out_of_range_is_refused(path, value):
    with pytest.raises(InputError) as caught:
        Problem.parse(changed(path, value))
    assert caught.value.path == written(path)


@pytest.mark.parametrize(
    ("path", "value", "refused"),
    [
        ("cluster.types.1.name", "cpu", "cluster.types[1].name"),
        ("profile.layers.2.name", "dense", "profile.layers[2].name"),
    ],
)
def test_a_name_that_stands_twice_is_refused(path, value, refused):
    with pytest.raises(InputError, match="stands twice") as caught:
        Problem.parse(changed(path, value))
    assert caught.value.path == refused


@pytest.mark.parametrize(
    ("path", "nearest"),
    [
        ("clusters", "cluster"),
        ("cluster.typs", "types"),
        ("cluster.types.0.price_per_our", "price_per_hour"),
        ("profile.layer", "layers"),
        ("profile.layers.0.wait_bytes", "weight_bytes"),
        (f"{ON}.alhpa", "alpha"),
        ("workload.epoch", "epochs"),
    ],
)
def test_an_unknown_key_is_refused_and_the_nearest_suggested(path, nearest):
    with pytest.raises(UnknownNameError, match=f"did you mean '{nearest}'") as caught:
        Problem.parse(changed(path, 1))
    assert caught.value.path == written(path)


@pytest.mark.parametrize(
    ("path", "value", "refused"),
    [
        ("profile.layers.1.on.gpus", DOCUMENT["profile"]["layers"][1]["on"]["gpu"], "on.gpus"),
        ("profile.layers.1.send", {"tpu": {"transfer_s": 1, "beta": 1}}, "send.tpu"),
    ],
)
def test_a_type_that_the_cluster_does_not_have_is_refused(path, value, refused):
    with pytest.raises(UnknownNameError, match="unknown resource type") as caught:
        Problem.parse(changed(path, value))
    assert caught.value.path == f"profile.layers[1].{refused}"


@pytest.mark.parametrize(
    ("entry", "refused"),
    [
        ({"transfer_s": 1}, "beta"),
        ({"beta": 1}, "transfer_s"),
        ({"transfer_s": -1, "beta": 1}, "transfer_s"),
        ({"transfer_s": 1, "beta": 1.1}, "beta"),
        ({"transfer_s": 1, "beta": 1, "alpha": 1}, "alpha"),
    ],
)
def test_a_send_entry_has_exactly_its_two_keys(entry, refused):
    with pytest.raises(InputError) as caught:
        Problem.parse(changed("profile.layers.1.send", {"gpu": entry}))
    assert caught.value.path == f"profile.layers[1].send.gpu.{refused}"


@pytest.mark.parametrize("document", [None, [], "cluster", 3])
def test_what_is_not_a_mapping_is_refused(document):
    with pytest.raises(InputError, match="problem: expected a mapping"):
        Problem.parse(document)


@pytest.mark.parametrize("key", ["name", "note", "expect", "provision"])
def test_the_further_keys_of_a_case_file_are_ignored(key):
    assert Problem.parse(DOCUMENT | {key: {"any": ["thing"]}}) == plain_problem()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("cluster.types.0.limit", 0),
        ("cluster.types.0.limit", 3.0),
        ("cluster.types.0.limit", 10**12),
        ("cluster.types.0.memory_gib", 0),
        ("profile.layers.1.on", {}),
        ("profile.layers.1.kind", ""),
        ("profile.layers.1.kind", "something of one's own"),
        ("profile.layers.1.weight_bytes", 0.5),
        ("workload.samples_per_epoch", 0),
        ("workload.epochs", 0.25),
    ],
)
def test_what_the_definition_allows_is_accepted(path, value):
    Problem.parse(changed(path, value))


def test_defaults_are_no_floor_no_overhead_and_no_sync():
    problem = plain_problem()
    assert (problem.workload.min_throughput, problem.workload.overhead_per_hour) == (0, 0)
    assert problem.profile.layers[0].on["cpu"].sync_s == 0
    assert problem.cluster.types[0].memory_gib is None


def test_a_problem_is_written_as_it_is_read():
    assert Problem.parse(plain_problem().as_document()) == plain_problem()


def test_a_problem_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        plain_problem().workload.epochs = 2


def test_a_job_gives_the_same_problem():
    assert Problem.of(Job.parse(DOCUMENT)) == plain_problem()


def test_a_job_without_a_profile_gives_no_problem():
    with pytest.raises(InputError, match="profile: is missing"):
        Problem.of(Job.parse(changed("profile", DELETED)))


def test_memory_is_compared_exactly():
    """Half a GiB twice fits in one; one byte more does not."""
    fits, over = plain_problem(), Problem.parse(changed("profile.layers.1.weight_bytes", 2**29 + 1))
    assert fits.kernel.reach[1, 1] == 3
    assert over.kernel.reach[1, 1] == 2
