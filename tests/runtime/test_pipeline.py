import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heterps.errors import InputError
from heterps.runtime.pipeline import Do, ReplicaProgram, Routing, Task


def test_a_micro_batch_goes_to_its_lane_modulo_the_replicas():
    routing = Routing(lanes=16, replicas=(3, 2, 1))
    assert [routing.replica(0, j) for j in (0, 1, 2, 3, 15, 16)] == [0, 1, 2, 0, 0, 0]
    assert [routing.replica(1, j) for j in (14, 15, 16, 17)] == [0, 1, 0, 1]


def test_peers_are_those_that_share_a_lane():
    routing = Routing(lanes=6, replicas=(3, 2, 6))
    assert routing.peers(0, 1, 1) == (0, 1)  # lanes 1 and 4
    assert routing.peers(0, 1, 2) == (1, 4)
    assert routing.peers(2, 4, 0) == (1,)


@pytest.mark.parametrize("replicas", [(), (0,), (1, 17)])
def test_a_stage_has_one_to_as_many_replicas_as_lanes(replicas):
    with pytest.raises(InputError, match="stages"):
        Routing(16, replicas)


def test_one_stage_goes_forward_and_back_and_commits():
    program = ReplicaProgram(Routing(4, (1,)), 0, 0, lambda b: range(2 * b, 2 * b + 2), end_batch=2)
    for j in range(4):
        program.input_arrived(j)
    expected = []
    for b in range(2):
        for j in (2 * b, 2 * b + 1):
            expected += [Task(Do.FORWARD, j), Task(Do.BACKWARD, j)]
        expected += [Task(Do.WEIGHTS, 2 * b), Task(Do.WEIGHTS, 2 * b + 1), Task(Do.COMMIT, b)]
    assert [program.take() for _ in range(15)] == [*expected, None]
    assert program.finished


def test_gradients_of_weights_wait_for_a_moment_with_nothing_else_to_do():
    program = ReplicaProgram(Routing(4, (1, 1)), 0, 0, lambda b: range(4), end_batch=1, credit=2)
    for j in range(3):
        program.input_arrived(j)
    assert [program.take() for _ in range(2)] == [(Do.FORWARD, 0), (Do.FORWARD, 1)]
    for j in range(2):
        program.gradient_arrived(j)
    expected = [(Do.BACKWARD, 0), (Do.BACKWARD, 1), (Do.FORWARD, 2), (Do.WEIGHTS, 0)]
    assert [program.take() for _ in expected] == expected
    program.input_arrived(3)
    assert [program.take() for _ in range(3)] == [(Do.FORWARD, 3), (Do.WEIGHTS, 1), None]


def test_only_so_many_are_left_for_later():
    program = ReplicaProgram(Routing(1, (1,)), 0, 0, lambda b: range(9), end_batch=1, credit=1)
    for j in range(9):
        program.input_arrived(j)
    tasks = [program.take() for _ in range(9 * 3)]
    left = [
        sum(1 if task.do is Do.BACKWARD else -1 for task in tasks[:at] if task.do is not Do.FORWARD)
        for at in range(len(tasks) + 1)
    ]
    assert (max(left), left[-1], program.take()) == (2, 0, Task(Do.COMMIT, 0))


def test_the_next_batch_waits_for_the_commit_unless_staleness_allows_it():
    for staleness, tasks in ((0, [(Do.FORWARD, 0), None]), (1, [(Do.FORWARD, 0), (Do.FORWARD, 1)])):
        program = ReplicaProgram(
            Routing(1, (1, 1)), 0, 0, lambda b: range(b, b + 1), end_batch=3, staleness=staleness
        )
        for j in range(3):
            program.input_arrived(j)
        assert [program.take() for _ in tasks] == tasks


def test_why_there_is_nothing_to_do_is_told():
    routing, batches = Routing(1, (1, 1)), lambda b: range(4 * b, 4 * b + 4)
    program = ReplicaProgram(routing, 0, 0, batches, end_batch=2, credit=2)
    assert (program.why(), program.why(arrived={0})) == ("input", "rows")
    for j in range(2):
        program.input_arrived(j)
        assert program.take() == (Do.FORWARD, j)
    assert program.why() == "credit"
    one = ReplicaProgram(Routing(1, (1, 1)), 0, 0, lambda b: range(b, b + 1), end_batch=2)
    one.input_arrived(0)
    assert one.take() == (Do.FORWARD, 0)
    assert one.why() == "staleness"


def test_what_is_not_due_is_refused():
    program = ReplicaProgram(Routing(2, (2, 1)), 0, 1, lambda b: range(4), end_batch=1)
    with pytest.raises(ValueError, match="not due"):
        program.input_arrived(0)
    program.input_arrived(1)
    with pytest.raises(ValueError, match="not due"):
        program.input_arrived(1)
    with pytest.raises(ValueError, match="no gradient"):
        program.gradient_arrived(1)


class _Pipeline:
    """All replicas of all stages; messages arrive in any order that a seed gives."""

    def __init__(self, routing, batches, count, credit, staleness, seed):
        self.routing, self.batches, self.count = routing, batches, count
        self.random = random.Random(seed)
        self.programs = {
            (stage, replica): ReplicaProgram(
                routing, stage, replica, batches,
                end_batch=count, credit=credit, staleness=staleness,
            )
            for stage, replicas in enumerate(routing.replicas)
            for replica in range(replicas)
        }  # fmt: skip
        self.done = {key: [] for key in self.programs}
        self.waiting = dict.fromkeys(self.programs)  # in the sum of a commit
        self.messages = []
        self.most_in_flight = 0
        for j in range(batches(0).start, batches(count - 1).stop):
            self.post("input", 0, j)

    def post(self, kind, stage, j):
        self.messages.append((kind, (stage, self.routing.replica(stage, j)), j))

    def deliver_one(self):
        kind, key, j = self.messages.pop(self.random.randrange(len(self.messages)))
        program = self.programs[key]
        program.input_arrived(j) if kind == "input" else program.gradient_arrived(j)

    def step(self, key):
        """One task of one replica; False when it has none."""
        stage = key[0]
        if self.waiting[key] is not None:
            return self.leave_commit(stage)
        task = self.programs[key].take()
        if task is None:
            return False
        self.done[key].append(task)
        self.most_in_flight = max(self.most_in_flight, self.programs[key].in_flight)
        if task.do is Do.COMMIT:
            self.waiting[key] = task.number
        elif task.do is Do.FORWARD and stage + 1 < self.routing.stages:
            self.post("input", stage + 1, task.number)
        elif task.do is Do.BACKWARD and stage > 0:
            self.post("gradient", stage - 1, task.number)
        return True

    def leave_commit(self, stage):
        keys = [key for key in self.waiting if key[0] == stage]
        batches = {self.waiting[key] for key in keys}
        if len(batches) > 1 or None in batches:
            return False
        for key in keys:
            self.waiting[key] = None
        return True

    def run(self):
        while not all(p.finished for p in self.programs.values()):
            keys = list(self.programs)
            self.random.shuffle(keys)
            progress = any(self.step(key) for key in keys)
            if self.messages and (not progress or self.random.random() < 0.7):
                self.deliver_one()
                progress = True
            assert progress, "the pipeline has locked up"


def check_order(pipeline, staleness):
    for (stage, replica), tasks in pipeline.done.items():
        mine = [
            j
            for b in range(pipeline.count)
            for j in pipeline.batches(b)
            if pipeline.routing.replica(stage, j) == replica
        ]
        assert [t.number for t in tasks if t.do is Do.FORWARD] == mine
        assert [t.number for t in tasks if t.do is Do.BACKWARD] == mine
        assert [t.number for t in tasks if t.do is Do.WEIGHTS] == mine
        assert [t.number for t in tasks if t.do is Do.COMMIT] == list(range(pipeline.count))
        position = {task: index for index, task in enumerate(tasks)}
        for b in range(pipeline.count):
            for j in pipeline.batches(b):
                if j not in mine:
                    continue
                assert position[Task(Do.BACKWARD, j)] < position[Task(Do.WEIGHTS, j)]
                assert position[Task(Do.WEIGHTS, j)] < position[Task(Do.COMMIT, b)]
                if b - 1 - staleness >= 0:
                    waited_for = Task(Do.COMMIT, b - 1 - staleness)
                    assert position[waited_for] < position[Task(Do.FORWARD, j)]


@settings(max_examples=80, deadline=None)
@given(
    lanes=st.integers(1, 9),
    stages=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    per_batch=st.integers(1, 12),
    count=st.integers(1, 5),
    credit=st.none() | st.integers(1, 4),
    staleness=st.integers(0, 2),
    seed=st.integers(0, 2**32),
)
def test_every_micro_batch_once_in_order_whatever_the_timing(
    lanes, stages, per_batch, count, credit, staleness, seed
):
    routing = Routing(lanes, tuple(min(lanes, k) for k in stages))
    pipeline = _Pipeline(
        routing, lambda b: range(b * per_batch, (b + 1) * per_batch), count, credit, staleness, seed
    )
    pipeline.run()
    check_order(pipeline, staleness)
    if credit is not None:
        assert pipeline.most_in_flight <= credit


def test_a_thousand_micro_batches_through_one_seven_and_three_replicas():
    routing = Routing(16, (1, 7, 3))
    pipeline = _Pipeline(routing, lambda b: range(b * 8, b * 8 + 8), 125, None, 0, 1)
    pipeline.run()
    check_order(pipeline, 0)
    assert pipeline.most_in_flight <= 22  # two for each of the eleven replicas, of the one in front


def test_more_batches_can_follow_and_their_input_may_come_first():
    program = ReplicaProgram(Routing(4, (1,)), 0, 0, lambda b: range(2 * b, 2 * b + 2), end_batch=1)
    for micro_batch in (0, 1, 2):
        program.input_arrived(micro_batch)
    first = [program.take() for _ in range(7)]
    assert (first[-1], first[-2], program.finished) == (
        Task(Do.COMMIT, 0),
        Task(Do.WEIGHTS, 1),
        True,
    )
    assert program.take() is None
    program.extend(2)
    assert (program.take(), program.finished) == (Task(Do.FORWARD, 2), False)
    with pytest.raises(ValueError, match="micro-batch 1 was not due"):
        program.input_arrived(1)


def test_synchronously_nothing_goes_on_before_the_sum_has_arrived():
    program = ReplicaProgram(
        Routing(1, (1,)), 0, 0, lambda b: range(b, b + 1), end_batch=2, beside=True
    )
    program.input_arrived(0)
    program.input_arrived(1)
    done = [program.take() for _ in range(5)]
    assert [task and task.do for task in done] == [
        Do.FORWARD,
        Do.BACKWARD,
        Do.WEIGHTS,
        Do.SUM,
        None,
    ]
    assert program.waits_for_sum
    program.sum_arrived()
    assert not program.waits_for_sum
    assert [program.take(), program.take()] == [(Do.COMMIT, 0), (Do.FORWARD, 1)]


def test_where_sums_run_beside_the_work_the_next_batch_goes_on_until_one_arrives():
    program = ReplicaProgram(
        Routing(1, (1,)), 0, 0, lambda b: range(b, b + 1), end_batch=4, staleness=1, beside=True
    )
    for micro_batch in range(4):
        program.input_arrived(micro_batch)
    expected = [Task(Do.FORWARD, 0), Task(Do.BACKWARD, 0), Task(Do.WEIGHTS, 0), Task(Do.SUM, 0)]
    expected += [Task(Do.FORWARD, 1), Task(Do.BACKWARD, 1), Task(Do.WEIGHTS, 1), None]
    assert [program.take() for _ in expected] == expected
    assert program.why() == "staleness"
    program.sum_arrived()
    expected = [Task(Do.COMMIT, 0), Task(Do.SUM, 1), Task(Do.FORWARD, 2)]
    assert [program.take() for _ in expected] == expected
    program.sum_arrived()
    assert program.take() == Task(Do.BACKWARD, 2)  # weights do not change in between
    assert program.take() == Task(Do.COMMIT, 1)
    with pytest.raises(ValueError, match="no sum was due"):
        program.sum_arrived()


def pairs(stages, **options):
    """Of batches of two micro-batches, all of whose inputs are there."""
    options = {"end_batch": 2, "credit": 9, "staleness": 1, **options}
    routing = Routing(1, (1,) * stages)
    program = ReplicaProgram(routing, 0, 0, lambda b: range(2 * b, 2 * b + 2), **options)
    for micro_batch in range(4):
        program.input_arrived(micro_batch)
    return program


def staleness_of(program, arrived):
    """By micro-batch that goes forward; ``arrived`` is called before the second of batch 1."""
    found = []
    while (task := program.take()) is not None:
        if task.do is Do.FORWARD:
            found.append(program.staleness_taken)
        if task == (Do.FORWARD, 2):
            arrived()
    return found


def test_a_batch_is_as_stale_as_the_weights_that_it_began_with():
    program = pairs(2)

    def go_back():
        program.gradient_arrived(0)
        program.gradient_arrived(1)

    assert staleness_of(program, go_back) == [0, 0, 1, 1]
    assert program.committed == 0


def test_a_micro_batch_of_the_last_stage_is_as_stale_as_the_weights_are():
    program = pairs(1, beside=True)
    assert staleness_of(program, program.sum_arrived) == [0, 0, 1, 0]
    assert program.committed == 0


def test_the_last_stage_adds_to_the_gradients_of_one_batch_only():
    program = ReplicaProgram(
        Routing(1, (1,)), 0, 0, lambda b: range(b, b + 1), end_batch=4, staleness=3, beside=True
    )
    for micro_batch in range(4):
        program.input_arrived(micro_batch)
    taken = list(iter(program.take, None))
    assert taken[3:] == [
        Task(Do.SUM, 0),
        *(Task(do, 1) for do in (Do.FORWARD, Do.BACKWARD, Do.WEIGHTS)),
    ]
    assert program.why() == "staleness"
    program.sum_arrived()
    expected = [Task(Do.COMMIT, 0), Task(Do.SUM, 1), Task(Do.FORWARD, 2)]
    assert [program.take() for _ in expected] == expected
