"""Measures a job's model on every resource type at hand, and derives the rest from published
figures."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from heterps.errors import InputError
from heterps.job.resources import Cluster, ResourceType
from heterps.job.spec import Job
from heterps.planning.cost_model import amdahl
from heterps.planning.ports import others_beside
from heterps.planning.profile import Profile
from heterps.planning.roofline import SOURCE as ROOFLINE
from heterps.planning.roofline import roofline_profile
from heterps.runtime.building import build_model
from heterps.runtime.emulation import exchanged_bytes
from heterps.runtime.engines import MakeEngine, engines_of
from heterps.runtime.prepare import prepare
from heterps.runtime.profiling.assemble import Batches, Moved, figures, link_s, totals
from heterps.runtime.profiling.cache import machine, measured_key
from heterps.runtime.profiling.exchange import Batch, read_batches, time_cuts, time_rows
from heterps.runtime.profiling.layers import LayerTimes, time_layers
from heterps.runtime.profiling.lines import (
    FIRST,
    LAST,
    MIDDLE,
    Line,
    Timed,
    in_turns,
    lines_of,
    time_line,
)
from heterps.runtime.profiling.links import Neighbours, find_neighbours
from heterps.runtime.profiling.observed import StageSeconds, mean_of
from heterps.runtime.profiling.trial import (
    bare,
    batches_in,
    for_trials,
    has_room,
    run_trial,
    whole_model,
)

MEASURED = "measured"
_MOST_UNITS = 4
_TURNS = 2  # runs on one unit and on more, in turns, as a host changes its pace

Report = Callable[[float, str], None]  # the share that is done, and what comes next


@dataclass(frozen=True)
class TypeFigures:
    """Of one type: a figure for each layer, and where they are from."""

    layers: list[dict[str, Any]]
    about: dict[str, Any]

    def seconds(self, units: int, others: float) -> list[float]:
        """Of each layer for a micro-batch on so many units, with others on their host."""
        crowd = others * self.about.get("crowding", 0.0)
        return [
            units * amdahl(on["compute_s"], on["alpha"], units) + crowd * on["compute_s"]
            for on in self.layers
        ]


def measure_profile(
    job: Job,
    report: Report = lambda share, note: None,
    make_engine: MakeEngine | None = None,
    *,
    known: Profile | None = None,
    seconds: float = 6.0,
) -> Profile:
    """The profile of a job, from runs of about so many ``seconds`` each. Types of ``known`` that
    were measured under the same conditions are taken from it, whatever the seconds were. Raises
    InputError for a type that is neither at hand nor in the catalogue."""
    types = {entry.name: entry for entry in job.cluster.types if entry.limit > 0}
    for index, entry in enumerate(job.cluster.types):
        missing = job.engine == "local" and not at_hand(entry)
        if entry.name in types and missing and entry.hardware is None:
            problem = f"this machine has no {entry.device}, and the type no hardware to go by"
            fix = "name its entry of the catalogue with 'catalog', or set its limit to 0"
            raise InputError(f"cluster.types[{index}].device", f"{problem}: {fix}")
    found = {name: _kept(known, job, entry) for name, entry in types.items()}
    with ExitStack() as stack:
        make = make_engine
        if None in found.values():
            make = stack.enter_context(engines_of(job, make_engine))
        run = _Profiling(job, report, make, seconds)
        new = [entry for name, entry in types.items() if found[name] is None]
        for number, entry in enumerate(new):
            found[entry.name] = run.of(entry, number, len(new) + 1)
        figures_of = {name: own for name, own in found.items() if own is not None}
        if new:
            run.in_lines(list(types.values()), new, figures_of)
    report(1.0, "")
    return run.profile(figures_of, known)


def at_hand(entry: ResourceType) -> bool:
    """Whether this machine has such a device."""
    kind = entry.device.partition(":")[0]
    available = getattr(getattr(torch, kind, None), "is_available", lambda: False)
    return kind == "cpu" or bool(available())


def _kept(known: Profile | None, job: Job, entry: ResourceType) -> TypeFigures | None:
    about = known.types.get(entry.name) if known is not None else None
    if known is None or about is None or about.key != measured_key(job, entry):
        return None
    if any(entry.name not in layer.on for layer in known.layers):
        return None
    layers = [layer.on[entry.name].as_document() for layer in known.layers]
    return TypeFigures(layers, about.as_document())


class _Profiling:
    """One profile in the making. What all types share is measured once, when it is needed."""

    def __init__(
        self, job: Job, report: Report, make_engine: MakeEngine | None, seconds: float
    ) -> None:
        self._job = bare(job)
        self._seconds = seconds
        self._report = report
        self._make_engine = make_engine
        entry = next(iter(job.cluster.types))
        layers = _layers_of(self._job)
        self._setup = prepare(self._job, whole_model(layers, entry.name, 1))
        work = job.workload
        self._batches = Batches(work.micro_batch_size, work.micro_batches)
        self._moved: tuple[Batch, Moved] | None = None
        self._layer_times: dict[tuple[str, int], LayerTimes] = {}
        self._seen_s: dict[str, float] = {}  # of types that were measured just now, on most units

    @cached_property
    def _cores(self) -> int:
        """Of all hosts that runs may use."""
        assert self._make_engine is not None, "made for what is not known"
        with (
            tempfile.TemporaryDirectory(prefix="heterps-") as path,
            self._make_engine(Path(path)) as engine,
        ):
            return engine.cores

    def of(self, entry: ResourceType, number: int, count: int) -> TypeFigures:
        """The figures of a type, which is one of so many."""

        def report(share: float, note: str) -> None:
            self._report((number + share) / count, f"{entry.name}: {note}")

        if not at_hand(entry):
            return self._roofline(entry)
        report(0.0, "rows, cuts and reading")
        batch, moved = self._what_moves()
        neighbours = self._neighbours(entry)
        link = neighbours.link if neighbours else None
        report(0.1, "layers")
        times = self._times(entry, batch)
        counts = unit_counts(self._job, entry, self._cores)
        turns = counts * _TURNS if len(counts) > 1 else counts
        seen: dict[int, list[StageSeconds]] = {units: [] for units in counts}
        for at, units in enumerate(turns):
            report(0.2 + 0.8 * at / len(turns), f"a run on {units}")
            seen[units].append(self._trial(entry, units, times, len(counts) / len(turns)))
        trials = {units: mean_of(each) for units, each in seen.items()}
        found = totals(trials, self._batches, partial(self._exchange_s, entry))
        layers, one = self._setup.trace.layers, trials[1]
        mbps = None if link is None else link.mbps
        own = figures(entry, layers, one, times, found, moved, self._batches, mbps)
        self._seen_s[entry.name] = self._batches.micro_batch_s(trials[counts[-1]])
        about = {
            "source": MEASURED,
            "key": measured_key(self._job, entry),
            "units": counts,
            "spread": max(times.spread, *(each.spread for each in trials.values())),
        }
        if found.fit.residual is not None:
            about["residual"] = found.fit.residual
        if found.crowding:
            about["crowding"] = found.crowding
        if found.summing:
            about["summing"] = found.summing
        if neighbours is not None:
            about |= neighbours.as_document()
        return TypeFigures(own, about)

    def in_lines(
        self,
        types: Sequence[ResourceType],
        new: Sequence[ResourceType],
        found: Mapping[str, TypeFigures],
    ) -> None:
        """Adds to the figures of types what they take in one of several stages beyond the layers,
        and makes what layers take the mean over the time that all runs took."""
        here = [entry for entry in types if found[entry.name].about["source"] == MEASURED]
        if not any(entry in here for entry in new):
            return
        hosts = {name: own.about.get("hosts", {}) for name, own in found.items()}
        lines = lines_of(self._job, here, self._cores, len(self._setup.chain.layers))
        lines = [line for line in lines if any(entry in new for entry in line.types)]
        alone = {entry.name: entry for line in lines for entry in line.types}
        runs = iter(range(len(lines) + 3 * len(alone)))

        def report(note: str) -> None:
            share = next(runs) / (len(lines) + 3 * len(alone))
            self._report((len(new) + share) / (len(new) + 1), note)

        def pace() -> dict[str, float]:
            now = {}
            for name, entry in alone.items():
                units = found[name].about["units"][-1]
                report(f"{name}: a run on {units}, as the pace of hosts changes")
                (layers_s,) = compute(Line((entry,), (units,)))
                said_s = sum(layers_s)
                seen = self._alone(entry, units, 1.3 * said_s)
                before_s = self._seen_s.get(name, said_s)
                now[name] = self._batches.micro_batch_s(seen) / before_s
            return now

        def compute(line: Line) -> list[list[float]]:
            stages = [(entry.name, units) for entry, units in line.stages]
            others = others_beside(hosts, stages)
            return [
                found[name].seconds(units, beside)
                for (name, units), beside in zip(stages, others, strict=True)
            ]

        def time(line: Line) -> Timed:
            report(f"a run with a stage each of {line.names}")
            return time_line(self._job, line, compute, self._seconds, self._make_engine)

        before = dict.fromkeys(alone, 1.0) if alone.keys() <= self._seen_s.keys() else pace()
        beside, usual = in_turns(lines, before, time, pace)
        for name, places in beside.items():
            found[name].about.update(places)
        for entry in new:
            self._at_pace(found[entry.name], usual.get(entry.name, 1.0))

    def _at_pace(self, own: TypeFigures, pace: float) -> None:
        for on in own.layers:
            on["compute_s"] *= pace
        for place in (FIRST, MIDDLE, LAST):
            if place in own.about:
                own.about[place] *= pace

    def profile(self, found: Mapping[str, TypeFigures], known: Profile | None) -> Profile:
        layers = [
            {
                "name": layer.name,
                "kind": layer.kind,
                "input_bytes": layer.input_bytes,
                "weight_bytes": layer.weight_bytes,
                "on": {name: each.layers[at] for name, each in found.items()},
                **self._traffic(at, known),
            }
            for at, layer in enumerate(self._setup.trace.layers)
        ]
        sources = {each.about["source"] for each in found.values()}
        document = {
            "model": str((self._job.model or {}).get("zoo", "model")),
            "batch_size": self._batches.micro_batch_size,
            "source": sources.pop() if len(sources) == 1 else "measured and roofline",
            "machine": machine(),
            "types": {name: each.about for name, each in found.items()},
            "layers": layers,
        }
        return Profile.parse(document, "profile")

    def _traffic(self, at: int, known: Profile | None) -> dict[str, Any]:
        """Of a layer; as it was known where no type was measured."""
        if self._moved is None:
            before = known.layers[at].as_document() if known is not None else {}
            return {name: before[name] for name in ("cut", "rows") if name in before}
        moved = self._moved[1]
        found = {"cut": asdict(moved.cuts[at].traffic)} if at else {}
        rows = moved.rows.get(self._setup.trace.layers[at].name)
        return found | ({} if rows is None else {"rows": asdict(rows.traffic)})

    def _what_moves(self) -> tuple[Batch, Moved]:
        if self._moved is None:
            batches, read_s = read_batches(self._setup)
            rows = time_rows(self._setup, batches, (1, 2))
            cuts = time_cuts(self._setup, batches[0])
            self._moved = batches[0], Moved(rows, cuts, read_s)
        return self._moved

    def _times(self, entry: ResourceType, batch: Batch) -> LayerTimes:
        key = (entry.device, entry.threads)
        if key not in self._layer_times:
            self._layer_times[key] = time_layers(self._setup, entry, batch)
        return self._layer_times[key]

    def _trial(
        self, entry: ResourceType, units: int, times: LayerTimes, share: float
    ) -> StageSeconds:
        once = (sum(times.forward_s) + sum(times.backward_s)) * (entry.slowdown or 1.0)
        return self._alone(entry, units, 1.3 * once, share)

    def _alone(
        self, entry: ResourceType, units: int, micro_batch_s: float, share: float = 1.0
    ) -> StageSeconds:
        """Of a run of the whole model in one stage, by about how long a micro-batch takes, for that
        share of the usual time."""
        job = for_trials(self._job)
        batch_s = micro_batch_s * job.workload.micro_batches / units
        plan = whole_model(len(self._setup.chain.layers), entry.name, units)
        return run_trial(
            job, plan, batches_in(share * self._seconds, batch_s), self._make_engine
        ).stages[0]

    def _neighbours(self, entry: ResourceType) -> Neighbours | None:
        """The local engine has only one host."""
        if self._make_engine is None or self._job.engine == "local":
            return None
        return find_neighbours(self._job, entry, self._make_engine)

    def _exchange_s(self, entry: ResourceType, units: int) -> float | None:
        """Of an emulated link."""
        if entry.link_mbps is None and entry.link_ms is None:
            return None
        weights = sum(weight.nbytes for weight in self._setup.chain.trained.values())
        by_servers = self._job.dense_sync == "server"
        moved = exchanged_bytes(weights, units, by_servers=by_servers)
        return link_s(entry, moved) + ((entry.link_ms or 0.0) / 1e3 if moved else 0.0)

    def _roofline(self, entry: ResourceType) -> TypeFigures:
        only = Cluster.parse({"types": [entry.as_document()]}, "cluster")
        size = self._batches.micro_batch_size
        derived = roofline_profile(self._setup.trace.layers, only, size)
        layers = [layer.on[entry.name].as_document() for layer in derived.layers]
        return TypeFigures(layers, {"source": ROOFLINE})


def unit_counts(job: Job, entry: ResourceType, cores: int) -> list[int]:
    """On how many units to run: one, and as many as divide a batch, are there beside the servers
    and leave room on that many cores."""
    m = for_trials(job).workload.micro_batches
    counts = (units for units in range(2, min(m, _MOST_UNITS) + 1) if m % units == 0)
    more = [units for units in counts if has_room(job, [(entry, units)], cores)]
    return [1, *more[-1:]]


def _layers_of(job: Job) -> int:
    return len(build_model(job).layers)
