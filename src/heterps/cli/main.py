"""The command ``heterps`` and how its failures look."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, TextIO

import typer

from heterps.cli.data import data_commands
from heterps.cli.errors import FAILED, exit_code, print_error, print_notice
from heterps.cli.evaluate import evaluate_command
from heterps.cli.init import init_command
from heterps.cli.output import BROKEN_PIPE, flush_output
from heterps.cli.plan import plan_command
from heterps.cli.predict import predict_command
from heterps.cli.profile import profile_command
from heterps.cli.ps import ps_commands
from heterps.cli.report import report_command
from heterps.cli.resume import resume_command
from heterps.cli.runs import runs_command
from heterps.cli.scale import scale_command
from heterps.cli.simulate import simulate_command
from heterps.cli.snapshot import snapshot_commands
from heterps.cli.train import train_command
from heterps.errors import HeterPSError
from heterps.storage.waits import waits_told

app = typer.Typer(
    name="heterps",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from heterps import __version__

        typer.echo(f"heterps {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Train a model on mixed hardware for the smallest bill that meets a throughput floor.

    Exit codes: 0 done, 1 an error, 2 wrong usage, 3 no feasible plan,
    130 Ctrl-C (143 SIGTERM, 129 SIGHUP).
    """


init_command(app)
profile_command(app)
plan_command(app)
simulate_command(app)
train_command(app)
resume_command(app)
scale_command(app)
snapshot_commands(app)
evaluate_command(app)
predict_command(app)
report_command(app)
runs_command(app)
data_commands(app)
ps_commands(app)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code; an error is one line on standard error."""
    args = list(sys.argv[1:] if argv is None else argv)
    _tolerate_any_text(sys.stdout, sys.stderr)
    try:
        with waits_told(print_notice):
            code = _run(args)
        problem = flush_output()
    except BrokenPipeError:
        return BROKEN_PIPE
    if problem is not None:
        print_error(f"standard output: {problem}")
        return FAILED
    return code


def _run(args: list[str]) -> int:
    try:
        app(args, prog_name="heterps")
    except SystemExit as done:
        if isinstance(done.__context__, BrokenPipeError):  # typer has ended it for that
            return BROKEN_PIPE
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    except HeterPSError as error:
        if "--debug" in args:
            raise
        print_error(str(error))
        return exit_code(error)
    except Exception as error:
        if "--debug" in args:
            raise
        print_error(f"internal error, {type(error).__name__}: {error} (--debug shows where)")
        return FAILED
    return 0


def _tolerate_any_text(*streams: TextIO) -> None:
    """Names in a file may hold what the terminal's encoding does not."""
    for stream in streams:
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
