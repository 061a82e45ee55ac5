from heterps.events import EventLog
from heterps.testing.trained import make_run

METER = {"batches": 10.0, "train_s": 5.0, "committed_s": 5.0, "forward_s": 4.8, "wait_rows_s": 0.2}
PROGRESS = {"step": 10, "samples": 1000, "stages": [METER], "losses": [0.7, 0.5]}
STAGES = [{"first": 0, "last": 3, "type": "cpu", "units": 2}]


def a_run(folder):
    run = make_run(folder, steps=1)
    run.write_json("plan.json", {"stages": STAGES})
    with EventLog(run.path / "events.jsonl") as log:
        log.write("ready")
        log.write("progress", **PROGRESS, seconds=5.0, dollars=0.5)
    return str(run.path)


def test_a_report_says_what_bounds_the_run_and_what_it_took(heterps, tmp_path):
    lines = heterps("report", a_run(tmp_path)).out.splitlines()
    assert lines[0] == "run: ctrdnn, lost"
    assert lines[3].split() == ["0", "0..3", "cpu", "2", "compute", "-", "480", "ms", "-"]
    shown = dict(line.split("  ", 1) for line in lines if "  " in line)
    assert shown["bound"].strip().startswith("compute: stage 0 (0..3 on cpu) works 96 %")
    assert shown["measured"].strip() == "200 samples/s once warm"
    assert shown["quality"].strip() == "loss 0.7000, then 0.5000"


def test_several_runs_stand_side_by_side_also_on_a_page(heterps, tmp_path):
    path, page = a_run(tmp_path), tmp_path / "page.html"
    result = heterps("report", path, path, "--html", str(page))
    assert "Side by side" in result.out
    assert result.out.splitlines()[-1] == f"page  {page}"
    assert page.read_text().count("<table") == 5
    assert "Side by side" in page.read_text()


def test_json_has_a_line_a_run(heterps, tmp_path):
    path = a_run(tmp_path)
    first, second = heterps("report", path, path, "--json").lines
    assert first == second
    assert first["bound"]["by"] == "compute"
    assert first["throughput"]["measured"] == 200.0


def test_what_is_no_run_is_told_in_one_line(heterps, tmp_path):
    result = heterps("report", str(tmp_path))
    assert (result.code, result.out) == (1, "")
    assert result.err == f"heterps: {tmp_path}: is no run folder: it holds no job.yaml\n"
