"""``heterps ps``: look at the parameter servers of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heterps.cli.tables import Table, duration, percent, print_heading, print_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def ps_commands(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Look at the parameter servers of a run.")
    group.command("stats")(stats)
    # With a second command typer keeps the first one's name.
    group.callback()(lambda: None)
    app.add_typer(group, name="ps")


def stats(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder.")],
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="To wait for an answer.")
    ] = 5.0,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON.")] = False,
) -> None:
    """Show the live servers of a run and their tables."""
    from heterps.ps.survey import survey

    seen = survey(run, timeout_s)
    live = [sighting.stats for sighting in seen if sighting.stats is not None]
    if as_json:
        silent = [
            {"shard": sighting.registration.shard, "problem": sighting.problem}
            for sighting in seen
            if sighting.stats is None
        ]
        print(json.dumps({"run": str(run), "servers": live, "silent": silent}))
        return
    print_heading(f"{run}: {len(live)} of {seen[0].registration.shards} servers answer")
    print_table(_servers(live))
    for sighting in seen:
        if sighting.problem is not None:
            print(sighting.problem)
    tables = sorted({name for server in live for name in server["tables"]})
    if tables:
        print_heading("\ntables, all live shards together")
        print_table(_tables(live, tables))


def _servers(servers: Sequence[Mapping[str, Any]]) -> Table:
    titles = ["shard", "pid", "up", "clients", "calls", "refused", "cpu", "resident", "address"]
    rows = [
        [
            str(server["shard"]),
            str(server["pid"]),
            duration(server["uptime_s"]),
            str(server["clients"]),
            f"{server['calls']:,}",
            f"{server['refused']:,}",
            duration(server["cpu_s"]),
            _size(server["resident_bytes"]),
            " ".join(server["addresses"]),
        ]
        for server in servers
    ]
    return Table(titles, rows, left=["address"])


def _tables(servers: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Table:
    titles = ["table", "rows", "in memory", "on disk", "memory", "pulled", "pushed", "hits"]
    rows = []
    for name in names:
        total = _total(server["tables"].get(name, {}) for server in servers)
        cold = total.get("cold_rows", 0)
        rows.append(
            [
                name,
                f"{total.get('rows', 0):,.0f}",
                f"{total.get('hot_rows', total.get('rows', 0)):,.0f}",
                f"{cold:,.0f}",
                _size(total.get("memory_bytes", 0)),
                f"{total.get('pulled_ids', 0):,.0f}",
                f"{total.get('pushed_ids', 0):,.0f}",
                _hit_rate(total),
            ]
        )
    return Table(titles, rows, left=["table"])


def _total(shards: Any) -> dict[str, float]:
    total: dict[str, float] = {}
    for shard in shards:
        for key, value in shard.items():
            total[key] = total.get(key, 0) + value
    return total


def _hit_rate(total: Mapping[str, float]) -> str:
    """The share of the rows asked for that were in memory."""
    asked = total.get("hits", 0) + total.get("misses", 0)
    return percent(total.get("hits", 0) / asked) if asked else "-"


def _size(size_bytes: float) -> str:
    for factor, unit in _UNITS:
        if size_bytes >= factor:
            return f"{size_bytes / factor:.3g} {unit}"
    return f"{size_bytes:.0f} B"
