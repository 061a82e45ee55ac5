"""``heterps profile``: what each layer takes on each resource type."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heterps.cli.options import Changes
from heterps.cli.plan import finite, print_json, write_text
from heterps.cli.terminal_bar import TerminalBar

if TYPE_CHECKING:
    from heterps.job.spec import Job
    from heterps.planning.profile import Profile
    from heterps.runtime.profiling.refit import StageFactors

_EXAMPLES = """\b
Examples:
  heterps profile job.yaml                    measure, and keep it beside the job
  heterps profile job.yaml --out new.json     keep it elsewhere
  heterps profile job.yaml --seconds 20       measure for longer, where other guests share the host
  heterps profile --from runs/ctrdnn-1        refit the profile of a run by what it measured
\b
Types of the cluster that this machine has, emulated ones included, are measured in short runs of
the job's model on its data; others are derived from published figures (catalog). What was
measured under the same conditions before is kept: --force measures it again.
"""


def profile_command(app: typer.Typer) -> None:
    app.command("profile", epilog=_EXAMPLES)(profile)


def profile(
    job: Annotated[
        Path | None, typer.Argument(metavar="JOB", help="The job file (YAML or JSON).")
    ] = None,
    changes: Changes = None,
    run: Annotated[
        Path | None, typer.Option("--from", metavar="RUN", help="Refit by this run instead.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to.", show_default="the job's, or beside it"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Measure all anew; overwrite.")] = False,
    seconds: Annotated[
        float, typer.Option(min=1.0, metavar="S", help="That each of the short runs takes.")
    ] = 6.0,
    as_json: Annotated[bool, typer.Option("--json", help="The profile as JSON.")] = False,
) -> None:
    """Measure (or derive) what each layer takes on each resource type."""
    if (job is None) == (run is None):
        raise typer.BadParameter("name a JOB to measure, or a run with --from RUN")
    if run is not None:
        _refit(run, out, force, as_json)
        return
    assert job is not None
    target = out or profile_path(job)
    found = measured(job, changes or [], target, seconds, force=force)
    if as_json:
        print_json(found.as_document())
    else:
        _print(found, target)


def profile_path(job: Path) -> Path:
    """Where the profile of a job stands: where it says, else beside it, by its name."""
    from heterps.job.load import beside, read_document

    said = read_document(job).get("profile")
    return job.parent / said if isinstance(said, str) else beside(job)


def measured(
    job: Path, changes: list[str], target: Path, seconds: float = 6.0, *, force: bool = False
) -> Profile:
    """Measures what is not known yet, and writes it. Raises InputError."""
    from heterps.errors import InputError
    from heterps.job.load import load_job

    loaded = load_job(job, ["profile=null", *changes])
    known = None if force else _known(target)
    try:
        found = _measure(loaded, known, seconds)
    except InputError as error:
        if type(error) is not InputError:
            raise
        raise InputError(f"{job}: {error.path}", error.problem) from None
    _write(found, target)
    return found


def ensure_profile(job: Path, changes: list[str], *, measure: bool = True) -> None:
    """Makes the profile of a job that names none, so that it can be planned; says so, and what in
    one that was made before is of another job by now."""
    from heterps.job.load import read_document

    document = read_document(job)
    target = profile_path(job)
    inline = isinstance(document.get("profile"), dict)
    named = any(change.startswith("profile=") for change in changes)
    trains = "model" in document and "data" in document and "plan" not in document
    if inline or named or not trains:
        return
    if target.exists():
        _tell_outdated(job, changes, target)
        return
    if not measure:
        return
    print(f"{job} has no profile yet: measuring one into {target}", file=sys.stderr, flush=True)
    measured(job, changes, target)


def _tell_outdated(job: Path, changes: list[str], target: Path) -> None:
    from heterps.job.load import load_job, read_document
    from heterps.planning.profile import Profile

    found = Profile.parse(read_document(target), f"{target}: profile")
    if not found.types:  # nobody measured it
        return
    from heterps.runtime.profiling.cache import outdated

    names = outdated(load_job(job, ["profile=null", *changes]), found)
    if names:
        said = f"{target} is of another model, job or machine for {', '.join(names)}"
        print(f"{said}: heterps profile {job} measures that", file=sys.stderr, flush=True)


def _known(target: Path) -> Profile | None:
    """What stands there. Raises InputError for what was not measured and would be lost."""
    from heterps.errors import InputError
    from heterps.job.load import read_document
    from heterps.planning.profile import Profile

    if not target.exists():
        return None
    found = Profile.parse(read_document(target), "profile")
    if not found.types:
        problem = "is there already and was not measured: --force replaces it, --out FILE keeps it"
        raise InputError(str(target), problem)
    return found


def _measure(job: Job, known: Profile | None, seconds: float) -> Profile:
    from heterps.runtime.profiling import measure_profile

    with TerminalBar("profile") as bar:

        def report(share: float, note: str) -> None:
            if sys.stderr.isatty():
                bar.show(share, 1.0, note)

        return measure_profile(job, report, known=known, seconds=seconds)


def _write(found: Profile, target: Path) -> None:
    write_text(target, json.dumps(finite(_rounded(found.as_document())), indent=1) + "\n")


def _rounded(value: Any) -> Any:
    """To six digits, which is more than is known."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    return [_rounded(entry) for entry in value] if isinstance(value, list) else value


def _refit(run: Path, out: Path | None, force: bool, as_json: bool) -> None:
    from heterps.errors import InputError
    from heterps.runtime.profiling import refit_profile

    found, factors = refit_profile(run)
    target = out or run / "profile.refitted.json"
    if target.exists() and not force:
        raise InputError(str(target), "is there already: --force replaces it, or say --out FILE")
    _write(found, target)
    if as_json:
        print_json(found.as_document())
        return
    _print_factors(factors)
    print(f"written to {target}")


def _print_factors(factors: list[StageFactors]) -> None:
    from heterps.cli.tables import Table, print_table

    rows = [
        (str(n), f.type, str(f.units), f"{f.compute:.2f}", f"{f.comm:.2f}")
        for n, f in enumerate(factors)
    ]
    titles = ("stage", "type", "units", "compute", "communication")
    print_table(Table(titles, rows, left=("type",)))
    print("measured over predicted; the layers of each stage were scaled by it")


def _print(found: Profile, target: Path) -> None:
    from heterps.cli.tables import Table, print_table

    names = list(found.layers[0].on)
    titles = ["layer", *(f"{name} {what}" for name in names for what in ("compute", "comm"))]
    rows = [
        (
            layer.name,
            *(
                f"{1e3 * seconds:.3f}"
                for name in names
                for seconds in (layer.on[name].compute_s, layer.on[name].comm_s)
            ),
        )
        for layer in found.layers
    ]
    print_table(Table(tuple(titles), rows, left=("layer",)))
    print(f"milliseconds for {found.batch_size} samples on one unit")
    for name, about in found.types.items():
        print(f"{name}: {_about(about)}")
    print(f"written to {target}")


def _about(about: Any) -> str:
    if about.spread is None:
        return str(about.source)
    ran = " and ".join(str(units) for units in about.units)
    text = f"{about.source} on {ran} {'unit' if about.units == (1,) else 'units'}"
    text += f", spread {100 * about.spread:.0f} %"
    if about.residual is not None and len(about.units) > 2:  # two points fit any line
        text += f", fit within {100 * about.residual:.1f} %"
    return text
