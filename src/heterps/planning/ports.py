"""Hosts of a plan, and what their ports carry between them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice, pairwise, product, repeat

from heterps.planning.profile import Profile


@dataclass(frozen=True)
class Places:
    """The hosts of each stage's replicas and of the parameter servers, and at what rate the port of
    a host carries what it sends, and what it gets."""

    replicas: tuple[tuple[str, ...], ...]
    servers: tuple[str, ...]
    bytes_per_s: Mapping[str, float]

    @property
    def far(self) -> bool:
        """Whether any that exchange activations are on different hosts."""
        return any(
            one != other
            for before, after in pairwise(self.replicas)
            for one, other in product(before, after)
        )


def places_of(profile: Profile, stages: Sequence[tuple[str, int]]) -> Places | None:
    """Of stages of so many units of a type each: hosts are filled one after the other, as an engine
    does that packs. None where the profile does not know the hosts, or nothing between them."""
    about = {name: profile.types.get(name) for name, _ in stages}
    known = {name: own for name, own in about.items() if own is not None and own.hosts}
    rates = {name: own.link_mbps for name, own in known.items() if own.link_mbps}
    if known.keys() != about.keys() or not rates:
        return None
    most = max(rates.values())
    mbps: defaultdict[str, float] = defaultdict(lambda: most)
    for name, rate in rates.items():
        for host in known[name].hosts:
            mbps[host] = max(rate, mbps.get(host, 0.0))
    slots = {name: _slots(own.hosts) for name, own in known.items()}
    replicas = tuple(tuple(islice(slots[name], units)) for name, units in stages)
    servers = next(iter(known.values())).servers_on
    hosts = {*chain.from_iterable(replicas), *servers}
    return Places(replicas, servers, {host: mbps[host] * 1e6 / 8 for host in hosts})


def others_beside(
    hosts: Mapping[str, Mapping[str, int]], stages: Sequence[tuple[str, int]]
) -> list[float]:
    """Of each stage, how many units of other stages are on the host of one of its own, on average;
    ``hosts`` by type as in a profile, and one for all where they are not known."""
    slots = {name: _slots(hosts.get(name) or {"": 10**9}) for name, _ in stages}
    replicas = [list(islice(slots[name], units)) for name, units in stages]
    on = Counter(chain.from_iterable(replicas))
    return [sum(on[host] - own.count(host) for host in own) / len(own) for own in replicas]


def more_than_layers(
    profile: Profile, stages: Sequence[tuple[str, int]]
) -> list[tuple[float, float]]:
    """Of each stage: what a micro-batch takes beyond its layers, and how much longer these take
    beside units of other stages, relative to one unit that is alone."""
    beside_s = profile.beside_layers_s([name for name, _ in stages])
    others = others_beside({name: own.hosts for name, own in profile.types.items()}, stages)
    crowding = [profile.types[n].crowding if n in profile.types else 0.0 for n, _ in stages]
    crowds = (count * each for count, each in zip(others, crowding, strict=True))
    return list(zip(beside_s, crowds, strict=True))


def _slots(hosts: Mapping[str, int]) -> Iterator[str]:
    """One host for each unit; past those that are known, others like the largest of them."""
    for host, units in hosts.items():
        yield from repeat(host, units)
    for number in count(1):
        yield from repeat(f"another {number}", max(hosts.values()))


class Ports:
    """The port of a host carries one message after the other each way; a message comes in as it
    goes out, a way later. Without ``places`` all are far from each other, and messages have no
    size."""

    def __init__(self, places: Places | None) -> None:
        self._places = places
        self._out_free: defaultdict[str, float] = defaultdict(float)
        self._in_free: defaultdict[str, float] = defaultdict(float)

    def to_servers(self, now: float, way_s: float, place: tuple[int, int], size: float) -> float:
        """When a message that leaves a replica now is there, in equal parts for all of them."""
        if self._places is None:
            return now + way_s
        own, servers = self._host(place), self._places.servers
        parts = (self._carried(now, way_s, own, host, size / len(servers)) for host in servers)
        return max(parts, default=now)

    def from_servers(self, now: float, way_s: float, place: tuple[int, int], size: float) -> float:
        if self._places is None:
            return now + way_s
        own, servers = self._host(place), self._places.servers
        parts = (self._carried(now, way_s, host, own, size / len(servers)) for host in servers)
        return max(parts, default=now)

    def between(
        self, now: float, way_s: float, one: tuple[int, int], other: tuple[int, int], size: float
    ) -> float:
        if self._places is None:
            return now + way_s
        return self._carried(now, way_s, self._host(one), self._host(other), size)

    def _host(self, place: tuple[int, int]) -> str:
        assert self._places is not None
        stage, replica = place
        return self._places.replicas[stage][replica]

    def _carried(self, now: float, way_s: float, origin: str, target: str, size: float) -> float:
        if origin == target:
            return now
        assert self._places is not None
        rates = self._places.bytes_per_s
        leaves = max(now, self._out_free[origin])
        self._out_free[origin] = leaves + size / rates[origin]
        comes = max(leaves + way_s, self._in_free[target])
        self._in_free[target] = comes + size / rates[target]
        return max(self._out_free[origin] + way_s, self._in_free[target])
