"""What every engine has to keep, as checks that any of them can be put through.

A check takes a function that makes the engine for a run folder, and raises AssertionError:

    @pytest.mark.parametrize("check", CHECKS)
    def test_my_engine_conforms(check, tmp_path):
        check(MyEngine, tmp_path)
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from heterps.errors import InputError, ProcessError
from heterps.runtime.engines.base import Engine, Handle, ProcessSpec

Make = Callable[[Path], Engine]
PATIENCE_S = 30.0
_CHILD = "heterps.testing.engine_child"


def spec(name: str, *arguments: object, **options: Any) -> ProcessSpec:
    """A process that does what `engine_child` is told."""
    return ProcessSpec(name, _CHILD, tuple(str(argument) for argument in arguments), **options)


def lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def all_ended(pids: list[int], seconds: float = PATIENCE_S) -> bool:
    deadline = time.monotonic() + seconds
    while any(lives(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(lives(pid) for pid in pids)


def told(handle: Handle, path: Path) -> Any:
    """What the process has written, once it has."""
    handle.wait_until(path.exists, PATIENCE_S)
    return json.loads(path.read_text())


def check_a_process_gets_arguments_environment_and_threads(make: Make, folder: Path) -> None:
    path = folder / "told"
    with make(folder) as engine:
        options = {"environment": {"COLOUR": "a b"}, "threads": 3}
        handle = engine.start(spec("one", "tell", path, "with space", "--flag", **options))
        document = told(handle, path)
    assert document["arguments"] == [str(path), "with space", "--flag"]
    assert document["environment"]["COLOUR"] == "a b"
    assert document["environment"]["OMP_NUM_THREADS"] == "3"


def check_a_secret_is_handed_over_where_nobody_sees_it(make: Make, folder: Path) -> None:
    path = folder / "told"
    with make(folder) as engine:
        document = told(engine.start(spec("one", "tell", path, secret=b"\0kept\n")), path)
    assert bytes.fromhex(document.pop("secret")) == b"\0kept\n"
    assert "kept" not in json.dumps(document)


def check_files_of_a_process_are_read_where_it_was_placed(make: Make, folder: Path) -> None:
    with make(folder) as engine:
        site = engine.place({"one": "cpu"})["one"]
        handle = engine.start(spec("one", "sleep", site.folder / "pid"))
        handle.wait_until(lambda: handle.read("pid") is not None, PATIENCE_S)
        assert lives(json.loads(handle.read("pid") or b"")[0])
        assert handle.read("other") is None


def check_the_exit_code_is_told(make: Make, folder: Path) -> None:
    with make(folder) as engine:
        for code in (0, 3):
            handle = engine.start(spec("one", "exit", code, "text"))
            assert _ended(handle) == code
            assert handle.stop() == code, "stopping what has ended does nothing"
            assert handle.last_words(1) == "text"


def check_a_process_is_asked_to_end(make: Make, folder: Path) -> None:
    with make(folder) as engine:
        handle = engine.start(spec("one", "end well", folder / "pid"))
        pids = told(handle, folder / "pid")
        assert handle.poll() is None
        assert handle.stop(PATIENCE_S) == 7
        assert handle.poll() == 7
        assert all_ended(pids)


def check_a_process_that_does_not_listen_is_ended(make: Make, folder: Path) -> None:
    with make(folder) as engine:
        handle = engine.start(spec("one", "ignore", folder / "pid"))
        pids = told(handle, folder / "pid")
        started = time.monotonic()
        assert handle.stop(0.2) != 0
        assert time.monotonic() - started < PATIENCE_S
        assert all_ended(pids)


def check_closing_ends_everything_together(make: Make, folder: Path) -> None:
    with make(folder) as engine:
        verbs = ("sleep", "ignore", "have a child", "ignore")
        handles = [engine.start(spec(f"p{n}", v, folder / f"{n}")) for n, v in enumerate(verbs)]
        pids = [pid for n, handle in enumerate(handles) for pid in told(handle, folder / f"{n}")]
        started = time.monotonic()
        engine.close(1.0)
        assert time.monotonic() - started < PATIENCE_S
    assert len(pids) == 5
    assert all_ended(pids)
    assert all(handle.poll() is not None for handle in handles)


def check_an_early_end_is_an_error_with_its_reason(make: Make, folder: Path) -> None:
    with make(folder) as engine:
        handle = engine.start(spec("server-1", "exit", 4, "no such table"))
        error = _problem(lambda: handle.wait_until(lambda: False, PATIENCE_S))
        for part in ("server-1", "code 4", "no such table"):
            assert part in error, error


def check_a_process_that_is_late_is_an_error(make: Make, folder: Path) -> None:
    with make(folder) as engine:
        handle = engine.start(spec("one", "sleep", folder / "pid"))
        error = _problem(lambda: handle.wait_until(lambda: False, 0.1))
        assert "not ready in 0.1 s" in error, error


def check_a_name_runs_once_at_a_time(make: Make, folder: Path) -> None:
    with make(folder) as engine:
        first = engine.start(spec("one", "sleep", folder / "a"))
        told(first, folder / "a")
        assert "one" in _problem(lambda: engine.start(spec("one", "sleep", folder / "b")))
        first.stop()
        told(engine.start(spec("one", "sleep", folder / "b")), folder / "b")


def check_what_cannot_start_is_an_error(make: Make, folder: Path) -> None:
    with make(folder) as engine:
        missing = ProcessSpec("one", "heterps.no_such_module")
        assert "no_such_module" in _problem(lambda: engine.start(missing))
    assert "closed" in _problem(lambda: engine.start(spec("one", "exit", 0, "")))


CHECKS: tuple[Callable[[Make, Path], None], ...] = (
    check_a_process_gets_arguments_environment_and_threads,
    check_a_secret_is_handed_over_where_nobody_sees_it,
    check_files_of_a_process_are_read_where_it_was_placed,
    check_the_exit_code_is_told,
    check_a_process_is_asked_to_end,
    check_a_process_that_does_not_listen_is_ended,
    check_closing_ends_everything_together,
    check_an_early_end_is_an_error_with_its_reason,
    check_a_process_that_is_late_is_an_error,
    check_a_name_runs_once_at_a_time,
    check_what_cannot_start_is_an_error,
)


def _ended(handle: Handle) -> int | None:
    deadline = time.monotonic() + PATIENCE_S
    while handle.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    return handle.poll()


def _problem(act: Callable[[], object]) -> str:
    try:
        act()
    except (InputError, ProcessError) as error:
        return str(error)
    raise AssertionError("no error")
