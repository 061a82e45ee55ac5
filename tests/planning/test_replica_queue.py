import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from heterps.planning.replica_queue import NONE, ReplicaQueue, Shape
from heterps.runtime.pipeline import Do, ReplicaProgram, Routing

WORDS = (Do.FORWARD, Do.BACKWARD, Do.COMMIT, Do.SUM, Do.WEIGHTS)


@st.composite
def shapes(draw):
    lanes = draw(st.integers(1, 8))
    replicas = draw(st.lists(st.integers(1, lanes), min_size=1, max_size=3))
    return Shape(
        lanes,
        tuple(replicas),
        draw(st.integers(1, 6)),
        draw(st.integers(0, 3)),
        draw(st.integers(1, 5)),
    )


def programs(shape, stage, replica):
    m = shape.micro_batches
    real = ReplicaProgram(
        Routing(shape.lanes, shape.replicas),
        stage,
        replica,
        lambda batch: range(m * batch, m * batch + m),
        end_batch=shape.batches,
        staleness=shape.staleness,
        beside=True,
    )
    return ReplicaQueue(shape, stage, replica), real


def own(queue):
    at, found = queue.next, []
    while at != NONE:
        found.append(at)
        at = queue.following(at)
    return found


@settings(deadline=None)
@given(shapes(), st.integers(0, 1000))
def test_every_replica_does_what_a_real_worker_does(shape, seed):
    drawn = random.Random(seed)
    stage = drawn.randrange(len(shape.replicas))
    queue, real = programs(shape, stage, drawn.randrange(shape.replicas[stage]))
    inputs, sent, summing = own(queue), [], False
    drawn.shuffle(inputs)
    while not real.finished:
        task = queue.take()
        expected = real.take()
        assert (task and (WORDS[task[0]], task[1])) == (expected and tuple(expected))
        if task and task[0] == 0:
            sent.append(task[1])
        elif task and task[0] == 1 and task[1] in sent:
            sent.remove(task[1])
        elif task and task[0] == 3:
            summing = True
        elif task is None and summing and (drawn.random() < 0.5 or not (inputs or sent)):
            summing = False
            queue.sum_arrived()
            real.sum_arrived()
        elif task is None and inputs and (not sent or drawn.random() < 0.5):
            at = inputs.pop()
            queue.ready.add(at)
            real.input_arrived(at)
        elif task is None and sent:
            at = sent.pop(drawn.randrange(len(sent)))
            queue.gradient_arrived(at)
            real.gradient_arrived(at)


@given(shapes(), st.booleans())
def test_routing_and_credit_are_those_of_a_run(shape, far):
    shape = replace(shape, far=far)
    routing = Routing(shape.lanes, shape.replicas, far)
    for stage in range(len(shape.replicas)):
        assert shape.credit(stage) == routing.credit(stage)
        assert [shape.replica(stage, j) for j in range(40)] == [
            routing.replica(stage, j) for j in range(40)
        ]
