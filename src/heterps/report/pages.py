"""HTML pages that need no other file."""

from __future__ import annotations

from html import escape

from heterps.planning.cost_model import StageCost
from heterps.planning.plan import Plan
from heterps.planning.problem import Problem

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 72rem; margin: 2rem auto;
       padding: 0 1rem; }
h1 { font-size: 1.4rem; }
h2 { font-size: 1.1rem; margin-top: 2rem; }
svg { width: 100%; height: auto; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .3rem .8rem; border-bottom: 1px solid #ddd; text-align: right; }
th.name, td.name, .lines td, .lines th { text-align: left; vertical-align: top; }
"""
_COLUMNS = (
    "stage",
    "layers",
    "type",
    "units",
    "compute s",
    "communication s",
    "samples/s",
    "dollars",
)
_NAMES = ("layers", "type")


def plan_page(problem: Problem, plan: Plan, figure: str) -> str:
    """The figure (an SVG element), the totals and the table of stages."""
    title = escape(f"Plan for {problem.profile.model}")
    rows = "\n".join(
        _row("td", _cells(problem, index, stage)) for index, stage in enumerate(plan.stages)
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{title}</h1>
<p>{escape(_summary(problem, plan))}</p>
{figure}
<table>
{_row("th", _COLUMNS)}
{rows}
</table>
</body>
</html>
"""


def _summary(problem: Problem, plan: Plan) -> str:
    cost = plan.breakdown
    speed = "unbounded" if plan.throughput is None else f"{plan.throughput:,.0f}"
    sure = "nothing is proven about cheaper plans"
    if plan.gap is not None:
        sure = f"at most {100 * plan.gap:.3g} % of it could be saved"
        if plan.gap <= 1e-6:
            sure = "proven optimal"
    return (
        f"${plan.cost:.4g} ({sure}) for {problem.workload.samples:,.0f} samples in "
        f"{cost.hours:.4g} hours at {speed} samples/s; "
        f"${cost.dollars_per_million_samples:.4g} per million samples; method {plan.method}."
    )


def _row(tag: str, cells: tuple[str, ...]) -> str:
    marked = (
        f'<{tag} class="name">{escape(cell)}</{tag}>'
        if column in _NAMES
        else f"<{tag}>{escape(cell)}</{tag}>"
        for column, cell in zip(_COLUMNS, cells, strict=True)
    )
    return f"<tr>{''.join(marked)}</tr>"


def _cells(problem: Problem, index: int, stage: StageCost) -> tuple[str, ...]:
    names = [layer.name for layer in problem.profile.layers[stage.first : stage.last + 1]]
    return (
        str(index),
        names[0] if len(names) == 1 else f"{names[0]} … {names[-1]} ({len(names)})",
        stage.type,
        str(stage.units),
        f"{stage.compute_s:.4g}",
        f"{stage.comm_s:.4g}",
        "unbounded" if stage.throughput is None else f"{stage.throughput:,.0f}",
        f"{stage.dollars:.4g}",
    )
