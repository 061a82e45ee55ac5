"""What of a Ray cluster a run takes, and whether it is there. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from heterps.errors import InputError
from heterps.job.ray import RayNeeds
from heterps.job.resources import ResourceType
from heterps.job.spec import Job
from heterps.runtime.specs import place_of

Resources = Mapping[str, float]
_SLACK = 1e-6


@dataclass(frozen=True)
class Bundle:
    """What one unit takes of a node, which has to have these labels."""

    resources: Resources
    labels: Mapping[str, str] = field(default_factory=dict)

    def fits(self, node: Node) -> bool:
        held = node.resources
        labelled = all(node.labels.get(key) == value for key, value in self.labels.items())
        enough = all(held.get(n, 0.0) + _SLACK >= count for n, count in self.resources.items())
        return labelled and enough

    @property
    def text(self) -> str:
        labels = [f"label {key}={value}" for key, value in self.labels.items()]
        return ", ".join(
            [*(f"{name} {count:g}" for name, count in self.resources.items()), *labels]
        )


@dataclass(frozen=True)
class Node:
    """``host`` is its address; ``resources`` are all that it has, used or not."""

    id: str
    host: str
    resources: Resources
    labels: Mapping[str, str] = field(default_factory=dict)

    def without(self, taken: Resources) -> Node:
        left = {n: count - taken.get(n, 0.0) for n, count in self.resources.items()}
        return Node(self.id, self.host, left, self.labels)

    @property
    def text(self) -> str:
        held = [f"{n} {self.resources[n]:g}" for n in sorted(self.resources) if _is_named(n)]
        given = sorted(label for label in self.labels.items() if not label[0].startswith("ray.io/"))
        labels = [f"label {key}={value}" for key, value in given]
        return f"{self.host}: {', '.join([*(held or ['nothing']), *labels])}"


def bundle_of(entry: ResourceType) -> Bundle:
    """A unit of a type. Where the job does not say: as many CPUs as it has threads, and a GPU
    unless it is a CPU itself or takes a resource of another name."""
    own = entry.ray or RayNeeds()
    is_cpu = entry.device.partition(":")[0] == "cpu"
    gpus = own.num_gpus
    if gpus is None:
        gpus = 0.0 if is_cpu or own.resources else 1.0
    counts = {
        "CPU": float(entry.threads) if own.num_cpus is None else own.num_cpus,
        "GPU": gpus,
        **own.resources,
    }
    taken = {name: count for name, count in counts.items() if count}
    if not taken:
        where = f"cluster.types.{entry.name}.ray"
        raise InputError(where, "takes nothing of a node: say num_cpus, num_gpus or resources")
    return Bundle(taken, own.labels)


def bundles_of(job: Job) -> dict[str, Bundle]:
    """By resource type; the empty name is a parameter server that is of none."""
    found = {entry.name: bundle_of(entry) for entry in job.cluster.types}
    return {"": Bundle({"CPU": float(job.servers.threads)}), **found}


def needed(job: Job) -> Bundle:
    """A node that has room for every unit within the job's limits, and the servers."""
    bundles = bundles_of(job)
    counts = Counter({entry.name: entry.limit for entry in job.cluster.types})
    if job.servers.type is None:
        counts[""] = job.servers.count
    total: dict[str, float] = {}
    labels: dict[str, str] = {}
    for name, count in counts.items():
        for resource, amount in bundles[name].resources.items():
            total[resource] = total.get(resource, 0.0) + amount * count
        for key, value in bundles[name].labels.items() if count else ():
            if labels.setdefault(key, value) != value:
                problem = f"one machine cannot have both {key}={labels[key]} and {key}={value}"
                raise InputError("ray.address", f"is missing, and {problem}")
    return Bundle(total, labels)


def of_others(node: Node, free: Resources, own: Resources) -> dict[str, float]:
    """What somebody else has taken of a node, of which this run has ``own``."""
    found = {
        name: count - free.get(name, 0.0) - own.get(name, 0.0)
        for name, count in node.resources.items()
        if _is_named(name)
    }
    return {name: count for name, count in found.items() if count > _SLACK}


def limits(
    wanted: Mapping[str, str],
    bundles: Mapping[str, Bundle],
    nodes: Sequence[Node],
    at: Mapping[str, str] | None = None,
) -> dict[str, int]:
    """How many units of each type there are, once ``wanted`` (type by process) have been served as
    far as they can be. Those that are ``at`` one of the nodes stay there, as long as there is room
    for the others then. Types that take the same resource may not all get as many at once."""
    found, left = _served(wanted, bundles, nodes, at or {})
    return {
        name: found[name] + sum(_room(bundle, node) for node in left)
        for name, bundle in bundles.items()
        if name
    }


def lacking(
    wanted: Mapping[str, str],
    bundles: Mapping[str, Bundle],
    nodes: Sequence[Node],
    there_is: str = "the cluster has",
) -> str | None:
    """Which process there is no room for and what there is, in one line; None when all fit."""
    left = list(nodes)
    for name, type_ in _largest_first(wanted, bundles):
        at = _best(bundles[type_], left)
        if at is None:
            what = f"a unit of '{type_}'" if type_ else "a parameter server"
            count = sum(other == type_ for other in wanted.values())
            needs = f"{name} ({what}, of which the plan has {count}) needs {bundles[type_].text}"
            return f"{needs}; {there_is} {shown(nodes)}"
        left[at] = left[at].without(bundles[type_].resources)
    return None


def shown(nodes: Sequence[Node]) -> str:
    """What nodes have, in one line."""
    return "; ".join(node.text for node in nodes) or "no node"


def _served(
    wanted: Mapping[str, str],
    bundles: Mapping[str, Bundle],
    nodes: Sequence[Node],
    at: Mapping[str, str],
) -> tuple[Counter[str], list[Node]]:
    """By type, and what is left of the nodes. Where there is no room for all of them, those go
    first without which the others are of no use."""
    by_id = {node.id: node for node in nodes}
    homeless: dict[str, str] = {}
    for name, type_ in wanted.items():
        home = by_id.get(at.get(name, ""))
        if home is None:
            homeless[name] = type_
        else:
            by_id[home.id] = home.without(bundles[type_].resources)
    staying = Counter(type_ for name, type_ in wanted.items() if name not in homeless)
    found, left = _packed(_largest_first(homeless, bundles), bundles, list(by_id.values()))
    if found.total() == len(homeless):
        return found + staying, left
    found, left = _packed(_largest_first(wanted, bundles), bundles, nodes)
    if found.total() == len(wanted):
        return found, left
    return _packed(_in_turn(wanted, bundles), bundles, nodes)


def _packed(
    wanted: Sequence[tuple[str, str]], bundles: Mapping[str, Bundle], nodes: Sequence[Node]
) -> tuple[Counter[str], list[Node]]:
    placed: Counter[str] = Counter()
    left = list(nodes)
    for _, name in wanted:
        at = _best(bundles[name], left)
        if at is not None:
            placed[name] += 1
            left[at] = left[at].without(bundles[name].resources)
    return placed, left


def _in_turn(wanted: Mapping[str, str], bundles: Mapping[str, Bundle]) -> list[tuple[str, str]]:
    """The servers, the first replica of each stage, the second of each, and so on."""

    def turn(item: tuple[str, str]) -> int:
        place = place_of(item[0])
        return 0 if place is None else 1 + place[1]

    return sorted(_largest_first(wanted, bundles), key=turn)


def _largest_first(
    wanted: Mapping[str, str], bundles: Mapping[str, Bundle]
) -> list[tuple[str, str]]:
    def size(item: tuple[str, str]) -> tuple[int, float]:
        bundle = bundles[item[1]]
        return len(bundle.labels) + len(bundle.resources), sum(bundle.resources.values())

    return sorted(wanted.items(), key=size, reverse=True)


def _best(bundle: Bundle, nodes: Sequence[Node]) -> int | None:
    """The node that others lose least by: it has little else to give, and little of the same."""

    def loss(number: int) -> tuple[int, float]:
        held = nodes[number].resources
        others = [n for n in held if _is_named(n) and n not in bundle.resources]
        return sum(held[n] > _SLACK for n in others), sum(held[n] for n in bundle.resources)

    return min((n for n, node in enumerate(nodes) if bundle.fits(node)), key=loss, default=None)


def _room(bundle: Bundle, node: Node) -> int:
    if not bundle.fits(node):
        return 0
    return int(min(node.resources[n] / count for n, count in bundle.resources.items()) + _SLACK)


def _is_named(resource: str) -> bool:
    """Not the ones that Ray makes for itself."""
    own = ("node:", "memory", "object_store_memory", "bundle_group")
    return not resource.startswith(own) and "_group_" not in resource
