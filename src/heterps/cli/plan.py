"""``heterps plan``: the cheapest plan, how sure that is, and why."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from heterps.cli.errors import exit_code, print_error, worst
from heterps.cli.options import Changes
from heterps.cli.progress import Interrupt
from heterps.errors import HeterPSError, InfeasibleError, InputError, UnknownNameError

if TYPE_CHECKING:
    from heterps.cli.answer import Answer, Request

_KINDS_OF_PLOT = (".png", ".html")
_EXAMPLES = """\b
Examples:
  heterps plan job.yaml                         the cheapest plan, and why
  heterps plan job.yaml --compare               all methods side by side
  heterps plan job.yaml --frontier              what more speed would cost
  heterps plan job.yaml --set cluster.types.v100.limit=8
                                                what if there were no more
  heterps plan job.yaml --plot plan.html        the same as pictures
  heterps plan --problem a.json b.json --json   one line of JSON a file
  heterps plan p.json --assignment cpu,cpu,gpu  units for a given assignment
  heterps plan job.yaml --simulated             units by the simulator, not the formula
  heterps plan job.yaml --measure 8             run plans here, take the best of them
\b
JOB is a job file (YAML or JSON) that holds or points to a cluster, a profile
and a workload, or a problem file: the three in one JSON object. Ctrl-C ends
the search with the best plan so far.
"""


class _PlanCommand(TyperCommand):
    """Takes ``--problem=FILE`` as well as ``--problem FILE…``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        split = [part for arg in args for part in _split_problem(arg)]
        return super().parse_args(ctx, split)


def _split_problem(arg: str) -> list[str]:
    return ["--problem", arg.removeprefix("--problem=")] if arg.startswith("--problem=") else [arg]


def plan_command(app: typer.Typer) -> None:
    app.command("plan", cls=_PlanCommand, epilog=_EXAMPLES)(plan)


def plan(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(metavar="JOB", help="Each is answered.")],
    problem: Annotated[
        bool,
        typer.Option("--problem", help="The files are problem files: --problem FILE..."),
    ] = False,
    method: Annotated[
        str, typer.Option(help="How to search; --compare shows the choice.", metavar="NAME")
    ] = "auto",
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of random draws.", show_default="the job's, or 0")
    ] = None,
    time_budget: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="Then the best plan so far is taken."),
    ] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Run every method.")] = False,
    assignment: Annotated[
        str | None,
        typer.Option(metavar="TYPE,TYPE,...", help="A type for each layer: choose units only."),
    ] = None,
    frontier: Annotated[
        bool, typer.Option("--frontier", help="The cheapest plans at rising throughput.")
    ] = False,
    explain: Annotated[
        bool | None,
        typer.Option("--explain/--no-explain", help="Say why.", show_default="not with --json"),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw plan and frontier: .png or .html")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the plan as JSON.")
    ] = None,
    changes: Changes = None,
    simulated: Annotated[
        bool,
        typer.Option("--simulated", help="Of the cheapest plans take the best in the simulator."),
    ] = False,
    measure: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Run up to N plans, learn from what they cost."),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.1, metavar="S", help="That --measure runs a plan, once warm.")
    ] = 5.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="One line of JSON for each file.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", hidden=True)] = False,
) -> None:
    """Choose the cheapest plan that meets the throughput floor."""
    _check_usage(files, method, compare, assignment, plot, out)
    if simulated and (compare or explain or assignment is not None):
        alone = "goes with neither --compare, --explain nor --assignment"
        raise typer.BadParameter(alone, param_hint="--simulated")
    if measure is not None:
        other = problem or compare or frontier or simulated or bool(explain)
        other = other or not (plot is None and assignment is None and time_budget is None)
        _check_measure(files, method, other=other)
        from heterps.cli.measure import plan_by_measuring

        given = changes or []
        plan_by_measuring(files[0], measure, seconds, seed, given, as_json=as_json, out=out)
        return
    if plot is not None:
        from heterps.report.plots import require_matplotlib

        require_matplotlib()
    from heterps.cli.answer import Request

    request = Request(
        method=method,
        seed=seed,
        time_budget=time_budget,
        assignment=None if assignment is None else _names(assignment),
        compare=compare,
        explain=not (as_json or compare or simulated) if explain is None else explain,
        frontier=frontier or plot is not None,
        problem_files=problem,
        simulated=simulated,
        changes=tuple(changes or ()),
    )
    debug = debug or bool(context.find_root().params.get("debug"))
    interrupt = Interrupt()
    with interrupt.watching():
        codes = [
            _Output(file, len(files), as_json, frontier, plot, out, debug).show(request, interrupt)
            for file in files
        ]
    raise typer.Exit(worst(codes))


def _check_usage(
    files: list[Path],
    method: str,
    compare: bool,
    assignment: str | None,
    plot: Path | None,
    out: Path | None,
) -> None:
    """Raises what ends as a usage error."""
    from heterps.planning.schedulers import METHODS

    if method not in METHODS:
        unknown = UnknownNameError("", "method", method, METHODS)
        raise typer.BadParameter(str(unknown), param_hint="--method")
    if assignment is not None and (compare or method != "auto"):
        raise typer.BadParameter(
            "goes with neither --method nor --compare", param_hint="--assignment"
        )
    if compare and method != "auto":
        raise typer.BadParameter("runs every method: leave out --method", param_hint="--compare")
    for option, path in (("--plot", plot), ("--out", out)):
        if path is not None and len(files) > 1:
            raise typer.BadParameter("takes the plan of one file only", param_hint=option)
    if plot is not None and plot.suffix not in _KINDS_OF_PLOT:
        raise typer.BadParameter(f"'{plot}' ends neither in .png nor in .html", param_hint="--plot")


def _check_measure(files: list[Path], method: str, *, other: bool) -> None:
    if other or method != "auto" or len(files) > 1:
        alone = "goes with one job, --seconds, --seed, --out and --json alone"
        raise typer.BadParameter(alone, param_hint="--measure")


def _names(assignment: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in assignment.split(","))


@dataclass(frozen=True)
class _Output:
    """Where the answer about a file goes."""

    file: Path
    files: int
    as_json: bool
    frontier: bool
    plot: Path | None
    out: Path | None
    debug: bool

    def show(self, request: Request, interrupt: Interrupt) -> int:
        """The exit code for the file."""
        from heterps.cli.answer import answer

        try:
            found = answer(self.file, request, interrupt)
            self._print(found)
            self._write(found)
        except HeterPSError as error:
            if self.debug:
                raise
            self._print_failure(error)
            return exit_code(error)
        return 0

    def _write(self, found: Answer) -> None:
        if self.out is not None:
            text = json.dumps(finite(found.plan.as_document()), indent=2, allow_nan=False)
            write_text(self.out, f"{text}\n")
        if self.plot is not None:
            from heterps.report.plots import draw_plan

            draw_plan(found.problem, found.plan, found.frontier, self.plot)

    def _print(self, found: Answer) -> None:
        if self.as_json:
            print_json(found.as_document(frontier=self.frontier))
        else:
            self._print_text(found)

    def _print_text(self, found: Answer) -> None:
        from heterps.cli import describe

        describe.print_title(self.file, found.problem)
        if found.comparison is not None:
            describe.print_comparison(found.comparison)
        else:
            cost = found.simulated_cost
            describe.print_plan(found.problem, found.plan, found.simulation, cost)
        if found.explanation is not None:
            describe.print_explanation(found.problem, found.explanation)
        if self.frontier and found.frontier is not None:
            describe.print_frontier(found.problem, found.frontier)
        if self.files > 1:
            print()

    def _print_failure(self, error: HeterPSError) -> None:
        """Infeasibility is an answer: with --json it goes where the answers go."""
        line: dict[str, Any] = {"problem": str(self.file)}
        if self.as_json and isinstance(error, InfeasibleError):
            line |= {"infeasible": error.reason, "max_throughput": error.max_throughput}
            print_json(line | {"detail": error.detail})
            return
        message = str(error)
        named = message.startswith(str(self.file))
        print_error(message if named else f"{self.file}: {message}")
        if self.as_json and self.files > 1:
            print_json(line | {"error": message})


def print_json(document: dict[str, Any]) -> None:
    print(json.dumps(finite(document), allow_nan=False), flush=True)


def finite(value: Any) -> Any:
    """The same with null in place of numbers that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [finite(entry) for entry in value]
    return value


def write_text(path: Path, text: str) -> None:
    """Raises InputError."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(str(path), f"cannot be written ({error.strerror})") from None
