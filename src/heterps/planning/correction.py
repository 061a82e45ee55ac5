"""A cost model that learns from what was measured.

What a stage took is the sum over its layers of what each takes, times a factor that is not known.
The logarithm of a factor is the sum of three normal variables: one for all, one for the type, one
for the layer on the type. So a run of one plan also corrects the belief about layers and types that
were not part of it, the less the further away they are, and runs that cut the model elsewhere tell
its layers apart. Given what was measured, the likeliest factors are found by Gauss and Newton.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from heterps.planning.cost_model import StageCost, amdahl, transfer_time
from heterps.planning.measured import MeasuredStage
from heterps.planning.ports import more_than_layers
from heterps.planning.problem import Problem
from heterps.planning.profile import LayerOnType, LayerProfile

# How far factors are expected to be from 1, as standard deviations of their logarithms: of all, of
# a type, of a layer on a type. What is measured is trusted to within _NOISE.
_ALL, _TYPE, _LAYER, _NOISE = 1.5, 0.5, 1.0, 0.05
_STEPS = 20
_MOST = np.log(1000.0)


@dataclass(frozen=True)
class Seen:
    """Seconds that a batch took a stage; ``shares`` is what the profile says of each layer of it,
    by layer and type number."""

    places: tuple[tuple[int, int], ...]
    shares: tuple[float, ...]
    seconds: float


class Factors:
    """Of one kind of time, compute or communication: [layers, types]."""

    def __init__(self, layers: int, types: int) -> None:
        self._shape = (layers, types)
        self._seen: list[Seen] = []
        self.values: NDArray[np.float64] = np.ones(self._shape)

    def learn(self, seen: Iterable[Seen]) -> None:
        self._seen += [entry for entry in seen if entry.seconds > 0 and sum(entry.shares) > 0]
        if self._seen:
            self.values = self._fitted()

    def _fitted(self) -> NDArray[np.float64]:
        layers, types = self._shape
        count = 1 + types + layers * types
        deviation = np.concatenate([[_ALL], np.full(types, _TYPE), np.full(layers * types, _LAYER)])
        unknown = np.zeros(count)  # in units of their deviations
        for _ in range(_STEPS):
            jacobian, residual = self._linearised(unknown * deviation)
            jacobian = jacobian * deviation
            normal = jacobian.T @ jacobian / _NOISE**2 + np.eye(count)
            step = np.linalg.solve(normal, -(jacobian.T @ residual) / _NOISE**2 - unknown)
            unknown = unknown + np.clip(step, -2.0, 2.0)
            if np.abs(step).max() < 1e-6:
                break
        logs = np.clip(self._logs(unknown * deviation), -_MOST, _MOST)
        return np.exp(logs)

    def _logs(self, unknown: NDArray[np.float64]) -> NDArray[np.float64]:
        layers, types = self._shape
        own = unknown[1 + types :].reshape(layers, types)
        logs: NDArray[np.float64] = unknown[0] + unknown[1 : 1 + types][None] + own
        return logs

    def _linearised(
        self, unknown: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """How the logarithm of each time depends on the unknown, and how far it is off."""
        types = self._shape[1]
        factors = np.exp(np.clip(self._logs(unknown), -_MOST, _MOST))
        jacobian = np.zeros((len(self._seen), len(unknown)))
        residual = np.zeros(len(self._seen))
        for row, entry in enumerate(self._seen):
            parts = [
                share * factors[at] for at, share in zip(entry.places, entry.shares, strict=True)
            ]
            total = sum(parts)
            residual[row] = np.log(total / entry.seconds)
            for (layer, kind), part in zip(entry.places, parts, strict=True):
                weight = part / total
                jacobian[row, 0] += weight
                jacobian[row, 1 + kind] += weight
                jacobian[row, 1 + types + layer * types + kind] += weight
        return jacobian, residual


class Correction:
    """Of a problem's profile, by what stages took."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._index = {name: number for number, name in enumerate(problem.types)}
        shape = (problem.layers, len(problem.types))
        self.compute = Factors(*shape)
        self.comm = Factors(*shape)

    def learn(self, stages: Sequence[StageCost], measured: Sequence[MeasuredStage | None]) -> None:
        """From the stages of a plan that was run."""
        pairs = list(zip(stages, measured, strict=True))
        more = more_than_layers(self._problem.profile, [(s.type, s.units) for s in stages])
        self.compute.learn(
            self._seen(stage, self._compute(stage, *each), seen.undisturbed_s)
            for (stage, seen), each in zip(pairs, more, strict=True)
            if seen is not None
        )
        self.comm.learn(
            self._seen(stage, self._comm(stage), seen.comm_s)
            for stage, seen in pairs
            if seen is not None
        )

    def problem(self) -> Problem:
        """With the profile that fits best what was measured."""
        layers = tuple(
            self._corrected(number, layer)
            for number, layer in enumerate(self._problem.profile.layers)
        )
        profile = self._problem.profile.model_copy(update={"layers": layers})
        return replace(self._problem, profile=profile)

    def _corrected(self, number: int, layer: LayerProfile) -> LayerProfile:
        on = {
            name: _scaled(
                figures,
                float(self.compute.values[number, self._index[name]]),
                float(self.comm.values[number, self._index[name]]),
            )
            for name, figures in layer.on.items()
        }
        return layer.model_copy(update={"on": on})

    def _seen(self, stage: StageCost, shares: list[float], seconds: float) -> Seen:
        kind = self._index[stage.type]
        places = tuple((layer, kind) for layer in range(stage.first, stage.last + 1))
        return Seen(places, tuple(shares), seconds)

    def _own(self, stage: StageCost) -> list[LayerOnType]:
        layers = self._problem.profile.layers[stage.first : stage.last + 1]
        return [layer.on[stage.type] for layer in layers]

    def _compute(self, stage: StageCost, beside_s: float, crowd: float) -> list[float]:
        """What a micro-batch takes beside its layers is shared out to them: the factors found are
        theirs alone."""
        own = self._own(stage)
        found = [
            self._scale
            * (amdahl(on.compute_s, on.alpha, stage.units) + crowd * on.compute_s / stage.units)
            for on in own
        ]
        more = beside_s * self._problem.workload.micro_batches / stage.units
        longer = 1 + more / sum(found) if sum(found) else 1.0
        return [longer * each for each in found]

    def _comm(self, stage: StageCost) -> list[float]:
        """What crosses the cuts counts for the first and the last layer."""
        found = [
            self._scale * amdahl(on.comm_s, on.beta, stage.units) + on.sync_s
            for on in self._own(stage)
        ]
        for place, border in ((0, stage.first), (-1, stage.last + 1)):
            crossing = transfer_time(self._problem, border, stage.type, stage.units)
            found[place] += self._scale * crossing
        return found

    @property
    def _scale(self) -> float:
        return self._problem.workload.batch_size / self._problem.profile.batch_size


def _scaled(figures: LayerOnType, compute: float, comm: float) -> LayerOnType:
    changed = {
        "compute_s": figures.compute_s * compute,
        "comm_s": figures.comm_s * comm,
        "sync_s": figures.sync_s * comm,
        "transfer_s": figures.transfer_s * comm,
    }
    return figures.model_copy(update=changed)
