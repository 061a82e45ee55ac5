import pytest

from heterps.planning.measured import CAUSES, MeasuredStage
from heterps.report.bounds import PlacedStage, find_bound

NOTHING = {
    **dict.fromkeys(("forward_s", "backward_s", "prepare_s", "send_s", "commit_s"), 0.0),
    **dict.fromkeys(("pull_s", "push_s", "link_s"), 0.0),
}


def placed(name="stage 0", layers=(), has_rows=True, waiting=None, **seconds):
    worked = sum(seconds.get(name, 0.0) for name in NOTHING if name[:4] not in ("pull", "link"))
    waits = dict.fromkeys(CAUSES, 0.0) | (waiting or {"staleness": 1 - worked})
    seen = MeasuredStage(10, 1.0, **(NOTHING | seconds), waiting=waits)
    return PlacedStage(name, seen, layers, has_rows)


@pytest.mark.parametrize(
    ("stages", "by", "said"),
    [
        ([placed(forward_s=0.3, backward_s=0.6)], "compute", "90 % in forward and backward"),
        ([placed(prepare_s=0.9)], "lookup", "asking for rows"),
        ([placed(send_s=0.9)], "network", "sending"),
        ([placed(commit_s=0.9)], "commit", "sum gradients"),
        ([placed(link_s=0.95, forward_s=0.2)], "network", "link of stage 0 is taken 95 %"),
        ([placed(forward_s=0.3, waiting={"input": 0.7})], "reading", "waits 70 %"),
        ([placed(forward_s=0.3, waiting={"rows": 0.7})], "lookup", "rows of the parameter"),
        ([placed(has_rows=False, forward_s=0.3, waiting={"rows": 0.7})], "network", "on its link"),
        ([placed(forward_s=0.5)], "pipeline", "no stage is at work"),
    ],
)
def test_what_takes_the_time_bounds_the_run(stages, by, said):
    found = find_bound(stages, staleness=0)
    assert (found.by, found.stage) == (by, 0)
    assert found.text.startswith(f"{by}: ")
    assert said in found.text


def test_the_busiest_stage_counts_and_its_heaviest_layer_is_named():
    late = placed("stage 1", [("fc1", 0.7), ("fc2", 0.3)], forward_s=0.9)
    found = find_bound([placed(forward_s=0.4), late], staleness=0)
    assert found.stage == 1
    assert found.text.endswith("by the profile fc1 is 70 % of that")


def test_a_stage_without_input_waits_for_what_the_one_before_it_waits_for():
    early = placed("stage 0", forward_s=0.2, waiting={"input": 0.8})
    late = placed("stage 1", forward_s=0.5, waiting={"input": 0.5})
    found = find_bound([early, late], staleness=0)
    assert (found.by, found.stage) == ("reading", 0)


def test_without_figures_nothing_is_said():
    assert find_bound([], staleness=0) is None
