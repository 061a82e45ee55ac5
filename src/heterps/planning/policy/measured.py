"""The second phase of learning: plans are run, and what they cost in fact is the reward.

The policy is first tuned on the cost model. Then, round by round: it proposes plans, what was
measured so far corrects the cost model that they are priced with, the most promising plan that was
not run yet is run, and REINFORCE makes plans that did well likelier, with the measured cost as the
reward of those that were run and the corrected one as that of the others.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from heterps.errors import InfeasibleError, InputError
from heterps.planning.correction import Correction
from heterps.planning.feasibility import max_throughput
from heterps.planning.kernel import Assignments
from heterps.planning.measured import MeasuredStage
from heterps.planning.plan import Plan, make_plan
from heterps.planning.policy.features import features_of
from heterps.planning.policy.learner import Learner, one_thread
from heterps.planning.policy.network import Policy
from heterps.planning.policy.pool import Pool
from heterps.planning.problem import Problem
from heterps.planning.provisioning import provision
from heterps.planning.reward import measured_score
from heterps.planning.schedulers.base import Report, Stop, ignore, never
from heterps.planning.schedulers.rl import LstmScheduler
from heterps.planning.simulate import simulate

Key = tuple[tuple[str, ...], tuple[int, ...]]  # of a plan: its assignment and units

METHOD = "rl-lstm, measured"
TOLERANCE = 0.02  # below the floor: what a few seconds of a run cannot tell
_CANDIDATES = 10
_LEARN = 4  # steps between two rounds
_LOOKS = 6
_EXPLORE_EVERY = 3  # rounds; then the policy's own draw is run
_WORTH = 1.5  # times the best expected cost, that a draw may be expected to cost
_SIMULATED_BATCHES = 12
_REACHABLE = 0.999
_HASTE = (1.1, 1.3)
_CONTENDERS, _NEAR = 3, 1.15  # how many plans are run again, and up to how much dearer ones
_MISSED = 4.0  # how much dearer a plan counts for each share of the floor that it misses


@dataclass(frozen=True)
class Round:
    """``plan`` has the figures of the profile as it was given; ``expected`` is what its run was
    expected to cost after the rounds before, ``cost`` what it did, in dollars for the workload at
    ``samples_per_s``, the median of its ``runs``. ``kept`` is whether it kept the floor."""

    plan: Plan
    expected: float
    samples_per_s: float
    cost: float
    kept: bool
    runs: tuple[float, ...] = ()


@dataclass(frozen=True)
class _Expected:
    """Dollars of a run, and the same made dearer by how far it would miss the floor."""

    cost: float
    score: float


class MeasuredSearch:
    """``propose`` a plan, run it, tell what was ``measured``; ``best`` is the best that was run."""

    def __init__(
        self,
        problem: Problem,
        *,
        seed: int = 0,
        steps: int = 12,
        samples: int = 64,
        rate: float = 5e-3,
        stop: Stop = never,
        report: Report = ignore,
    ) -> None:
        """Tunes the shipped policy on the cost model. Raises InfeasibleError."""
        self._problem = _runnable(problem)
        self._seed, self._samples, self._rate = seed, samples, rate
        scheduler = LstmScheduler(seed=seed, steps=steps)
        self.first, self._policy = scheduler.tune(self._problem, stop=stop, report=report)
        self._correction = Correction(self._problem)
        self._expected: dict[Key, float] = {}
        self._failed: set[Key] = set()
        self._stop = stop
        self.rounds: list[Round] = []

    @property
    def best(self) -> Round | None:
        """The cheapest of those that kept the floor; the fastest where none did."""
        kept = [entry for entry in self.rounds if entry.kept]
        if kept:
            return min(kept, key=lambda entry: entry.cost)
        return max(self.rounds, key=lambda entry: entry.samples_per_s, default=None)

    @property
    def policy(self) -> Policy:
        """As it was tuned so far."""
        return self._policy

    def propose(self) -> Plan | None:
        """The next plan to run; None when all that comes to mind has been."""
        belief = self._belief()
        with one_thread():
            pool, drawn = self._search(belief)
        rows = [*pool.elite(_CANDIDATES), *drawn[:_CANDIDATES]]
        priced = self._priced(belief, rows)
        if not self.rounds and _key(self.first) in priced:
            return self._chosen(_key(self.first), priced)
        if not priced:
            return None
        best = min(priced, key=lambda key: priced[key].score)
        if len(self.rounds) % _EXPLORE_EVERY == _EXPLORE_EVERY - 1:
            best = self._draw(belief, drawn, priced, best)
        return self._chosen(best, priced)

    def measured(
        self, plan: Plan, samples_per_s: float, stages: Sequence[MeasuredStage | None]
    ) -> Round:
        """What a run of the plan has shown."""
        expected = self._expected.get(_key(plan), math.nan)
        self.rounds.append(self._round(plan, expected, (samples_per_s,)))
        self._correction.learn(plan.stages, stages)
        return self.rounds[-1]

    def contenders(self) -> list[Plan]:
        """The plans that may be the best, best first: short runs differ by some per cent. None
        where there is no doubt."""
        best = self.best
        if best is None:
            return []
        near = [each for each in self.rounds if each.kept == best.kept and _near(each, best)]
        near.sort(key=lambda each: each.cost if best.kept else -each.samples_per_s)
        return [each.plan for each in near[:_CONTENDERS]] if len(near) > 1 else []

    def measured_again(self, plan: Plan, samples_per_s: float) -> Round:
        """One more run of a plan that had its round."""
        at = next(n for n, each in enumerate(self.rounds) if _key(each.plan) == _key(plan))
        before = self.rounds[at]
        self.rounds[at] = self._round(plan, before.expected, (*before.runs, samples_per_s))
        return self.rounds[at]

    def _round(self, plan: Plan, expected: float, runs: tuple[float, ...]) -> Round:
        assert plan.throughput is not None
        samples_per_s = statistics.median(runs)
        cost = plan.cost * plan.throughput / samples_per_s
        kept = samples_per_s >= self._problem.workload.min_throughput * (1 - TOLERANCE)
        return Round(plan, expected, samples_per_s, cost, kept, runs)

    def failed(self, plan: Plan) -> None:
        """A run of the plan came to nothing: it is not proposed again."""
        self._failed.add(_key(plan))

    def _belief(self) -> Problem:
        """The problem as it looks after what was measured. Its floor is such that a plan which
        keeps it is expected to keep the real one: runs are slower than the formula where stages
        wait for each other."""
        problem = self._correction.problem()
        floor = problem.workload.min_throughput
        if not floor or not self.rounds:
            return problem
        wanted = problem.with_min_throughput(floor / self._reached(problem))
        return _reachable(wanted)

    def _reached(self, problem: Problem) -> float:
        """Which share of the formula's throughput runs have reached."""
        shares = []
        for entry in self.rounds:
            now = make_plan(problem, METHOD, entry.plan.assignment, entry.plan.units)
            if now.throughput:
                shares.append(entry.samples_per_s / now.throughput)
        return min(1.2, max(0.25, statistics.median(shares))) if shares else 1.0

    def _search(self, belief: Problem) -> tuple[Pool, Assignments]:
        """Plans that look good, and what the policy itself draws, after it has learned."""
        learner = Learner(
            self._policy,
            features_of(belief.kernel),
            seed=1000 * self._seed + len(self.rounds),
            rate=self._rate,
        )
        pool = Pool(belief.kernel)
        pool.add(self._rows([self.first, *(entry.plan for entry in self.rounds)]))
        for _ in range(_LEARN):
            self._learn(learner, pool)
        for _ in range(_LOOKS):
            pool.look_around(1)
        self._policy = learner.policy
        return pool, learner.propose(self._samples)

    def _learn(self, learner: Learner, pool: Pool) -> None:
        """From draws at the corrected price, and from all runs at their measured one."""
        drawn = learner.propose(self._samples)
        scores = pool.add(drawn)
        best = self.best
        if best is None:
            learner.learn(drawn, scores, imitate=pool.elite(4))
            return
        run = self._rows([entry.plan for entry in self.rounds])
        found = [measured_score(entry.cost, best.cost, self._short(entry)) for entry in self.rounds]
        # As many rows of what was run as of what was drawn: the runs are what is true.
        times = -(-len(drawn) // len(run))
        plans = np.concatenate([drawn, np.tile(run, (times, 1))])
        rewards = np.concatenate([scores, np.tile(np.array(found), times)])
        learner.learn(plans, rewards, imitate=self._rows([best.plan]))

    def _short(self, entry: Round) -> float:
        """By how much a run has missed the floor."""
        if entry.kept:
            return 0.0
        return self._problem.workload.min_throughput / entry.samples_per_s - 1

    def _priced(self, belief: Problem, rows: Sequence[np.ndarray]) -> dict[Key, _Expected]:
        """What each plan that was not run yet is expected to cost in a run: the simulator knows
        what the formula leaves out. A plan that would miss the floor counts as that much dearer."""
        priced: dict[Key, _Expected] = {}
        seen = {_key(entry.plan) for entry in self.rounds} | self._failed
        # Units for the floor as it is, too: what made runs slow may have been chance.
        floor = self._problem.workload.min_throughput
        problems = [belief, belief.with_min_throughput(floor)]
        for row, problem in product(rows, problems):
            for plan in _provisions(problem, belief.kernel.names(row)):
                if _key(plan) in seen or (priced and self._stop()):
                    continue
                seen.add(_key(plan))
                expected = self._expect(belief, plan)
                if expected is not None:
                    priced[_key(plan)] = expected
        return priced

    def _expect(self, belief: Problem, plan: Plan) -> _Expected | None:
        try:
            found = simulate(belief, plan, batches=_SIMULATED_BATCHES).samples_per_s
        except InputError:
            return None
        if not found or not plan.throughput:
            return None
        cost = plan.cost * plan.throughput / found
        floor = self._problem.workload.min_throughput
        missed = max(0.0, floor * (1 - TOLERANCE) / found - 1)
        return _Expected(cost, cost * (1 + _MISSED * missed))

    def _draw(
        self,
        belief: Problem,
        drawn: Assignments,
        priced: dict[Key, _Expected],
        best: Key,
    ) -> Key:
        """The first of the policy's own draws that is not expected to be far from the best."""
        names = [belief.kernel.names(row) for row in drawn]
        for own in names:
            for key, cost in priced.items():
                near = cost.score <= _WORTH * priced[best].score
                if key[0] == own and key != best and near:
                    return key
        return best

    def _chosen(
        self,
        key: Key,
        priced: dict[Key, _Expected],
    ) -> Plan:
        self._expected[key] = priced[key].cost
        return make_plan(self._problem, METHOD, *key)

    def _rows(self, plans: Sequence[Plan]) -> Assignments:
        rows = [self._problem.type_indices(plan.assignment) for plan in plans]
        return np.array(rows, np.int32).reshape(-1, self._problem.layers)


def _near(entry: Round, best: Round) -> bool:
    if best.kept:
        return entry.cost <= _NEAR * best.cost
    return best.samples_per_s <= _NEAR * entry.samples_per_s


def _key(plan: Plan) -> Key:
    return plan.assignment, plan.units


def _provisions(problem: Problem, assignment: Sequence[str]) -> Iterator[Plan]:
    """The units that the formula gives, and more of them, as if the floor were higher: where stages
    wait for each other a plan needs more than the formula says."""
    try:
        plan = provision(problem, assignment)
        yield plan
        for haste in _HASTE:
            if plan.throughput:
                yield provision(problem.with_min_throughput(plan.throughput * haste), assignment)
    except InfeasibleError:
        return


def _runnable(problem: Problem) -> Problem:
    """At staleness 0 no stage can have more replicas than a batch has micro-batches."""
    work = problem.workload
    if work.staleness > 0:
        return problem
    limits = {entry.name: min(entry.limit, work.micro_batches) for entry in problem.cluster.types}
    return problem.with_limits(limits)


def _reachable(problem: Problem) -> Problem:
    """With a floor that some plan reaches, if its own is out of reach."""
    most, floor = max_throughput(problem), problem.workload.min_throughput
    if most is None or floor <= most * _REACHABLE:
        return problem
    return problem.with_min_throughput(most * _REACHABLE)
