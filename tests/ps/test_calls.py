from heterps.errors import ServerError
from heterps.ps.calls import Joint, Reply


def test_calls_that_are_to_be_settled_fail_when_none_is_at_work_any_more():
    joint = Joint(3, list, settled=True)
    first, second, third = (joint.part(shard) for shard in range(3))
    first(ServerError("one"))
    second(Reply({}, ()))
    assert not joint.future.done()
    third(ServerError("another"))
    assert str(joint.future.exception()) == "one"


def test_other_calls_fail_at_once_and_those_that_succeed_give_all_results_in_order():
    failed, done = Joint(2, list), Joint(2, list)
    failed.part(1)(ServerError("one"))
    assert str(failed.future.exception()) == "one"
    failed.part(0)(Reply({}, ()))
    for shard in (1, 0):
        done.part(shard)(Reply({"shard": shard}, ()))
    assert done.future.result() == [{"shard": 0}, {"shard": 1}]
