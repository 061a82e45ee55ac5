"""A plan as a picture: which type runs each layer, how long each stage takes, what speed costs."""

from __future__ import annotations

import importlib.util
import io
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heterps.errors import InputError, MissingExtraError
from heterps.planning.cost_model import StageCost
from heterps.planning.frontier import Frontier
from heterps.planning.plan import Plan
from heterps.planning.problem import Problem
from heterps.report.pages import plan_page

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Distinct to colour-blind eyes too (Okabe and Ito); repeated where there are more types.
_COLOURS = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#8a7f00",
    "#7b3fa0",
)
_INK, _QUIET, _ACCENT = "#222222", "#8a8a8a", "#c0392b"
_SETTINGS: dict[Any, Any] = {
    "axes.edgecolor": _QUIET,
    "axes.labelcolor": _INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "font.size": 9,
    "svg.hashsalt": "heterps",
    "text.parse_math": False,  # a dollar sign is a dollar sign
    "xtick.color": _INK,
    "ytick.color": _INK,
}


def require_matplotlib() -> None:
    """Raises MissingExtraError where it is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtraError("drawing", "plot")


def draw_plan(problem: Problem, plan: Plan, frontier: Frontier | None, path: Path) -> None:
    """Writes a PNG, or where ``path`` ends in ``.html`` a page that needs nothing else.

    Raises MissingExtraError, and InputError where the file cannot be written.
    """
    require_matplotlib()
    with _drawing():
        figure = _figure(problem, plan, frontier)
        if path.suffix == ".html":
            content = plan_page(problem, plan, _svg(figure)).encode()
        else:
            content = _png(figure)
    try:
        path.write_bytes(content)
    except OSError as error:
        raise InputError(str(path), f"cannot be written ({error.strerror})") from None


@contextmanager
def _drawing() -> Iterator[None]:
    import matplotlib as mpl

    with mpl.rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
        yield


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    return buffer.getvalue()


def _svg(figure: Figure) -> str:
    """Without the XML declaration, to stand inside a page; the same for the same plan."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _figure(problem: Problem, plan: Plan, frontier: Frontier | None) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    width = min(18.0, max(9.0, 0.3 * problem.layers + 2))
    heights = [0.55, 2.2] + ([2.6] if frontier is not None else [])
    figure = Figure(figsize=(width, 2.2 + sum(heights)), layout=ConstrainedLayoutEngine(h_pad=0.1))
    grid = figure.add_gridspec(len(heights), 1, height_ratios=heights)
    strip = figure.add_subplot(grid[0])
    bars = figure.add_subplot(grid[1], sharex=strip)
    figure.suptitle(_headline(problem, plan), x=0.01, ha="left", fontsize=13, fontweight="bold")
    _draw_strip(strip, problem, plan)
    _draw_stages(bars, problem, plan)
    if frontier is not None:
        _draw_frontier(figure.add_subplot(grid[2]), problem, plan, frontier)
    return figure


def _headline(problem: Problem, plan: Plan) -> str:
    speed = "no time" if plan.throughput is None else f"{plan.throughput:,.0f} samples/s"
    return f"{problem.profile.model}: ${plan.cost:,.4g} at {speed}"


def _colour(problem: Problem, type_name: str) -> str:
    return _COLOURS[problem.types.index(type_name) % len(_COLOURS)]


def _draw_strip(axes: Axes, problem: Problem, plan: Plan) -> None:
    """One box a layer in the colour of its type, the units of each stage above."""
    per_letter = 0.011 * problem.layers
    crowded = any(
        per_letter * len(_units(stage)) > stage.last - stage.first + 1 for stage in plan.stages
    )
    for stage in plan.stages:
        colour = _colour(problem, stage.type)
        boxes = [(layer, 1.0) for layer in range(stage.first, stage.last + 1)]
        axes.broken_barh(boxes, (0, 1), color=colour, edgecolor="white", linewidth=1)
        axes.annotate(
            _units(stage),
            ((stage.first + stage.last + 1) / 2, 1.15),
            ha="left" if crowded else "center",
            va="bottom",
            rotation=45 if crowded else 0,
            rotation_mode="anchor",
            color=colour,
            fontweight="bold",
            annotation_clip=False,
        )
    axes.set_xlim(0, problem.layers)
    axes.set_ylim(0, 1)
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    _label_layers(axes, problem)


def _units(stage: StageCost) -> str:
    return f"{stage.units} {stage.type}"


def _draw_stages(axes: Axes, problem: Problem, plan: Plan) -> None:
    """Beneath each stage of the strip, what a batch takes: left compute, right communication."""
    pace = max(stage.period_s for stage in plan.stages)
    factor, unit = _time_unit(pace)
    for stage in plan.stages:
        _draw_stage(axes, stage, factor, _colour(problem, stage.type), 0.05 * problem.layers)
    axes.axhline(pace * factor, color=_INK, linewidth=1)
    longest_s = _longest_worth_showing(problem, pace)
    if longest_s is not None:
        axes.axhline(longest_s * factor, color=_ACCENT, linewidth=1, linestyle="--")
    axes.set_ylim(0, 1.08 * max(pace, longest_s or 0) * factor or 1)
    axes.set_ylabel(f"{unit} a batch")
    axes.tick_params(axis="x", bottom=False, labelbottom=False)
    axes.legend(
        handles=_stage_legend(longest_s is not None),
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=4,
        frameon=False,
    )


def _longest_worth_showing(problem: Problem, pace: float) -> float | None:
    """The longest period that the floor allows, unless it would dwarf the bars."""
    floor = problem.workload.min_throughput
    longest_s = problem.workload.batch_size / floor if floor > 0 else math.inf
    return longest_s if longest_s <= 2 * pace else None


def _draw_stage(axes: Axes, stage: StageCost, factor: float, colour: str, widest: float) -> None:
    length = stage.last - stage.first + 1
    middle = (stage.first + stage.last + 1) / 2
    width = min(0.42 * length, widest)
    sides = (
        (middle - width, stage.compute_s, colour, None),
        (middle, stage.comm_s, f"{colour}40", "////"),
    )
    for left, seconds, fill, hatch in sides:
        axes.bar(
            left,
            seconds * factor,
            width,
            align="edge",
            color=fill,
            hatch=hatch,
            edgecolor=colour,
            linewidth=0.8,
        )


def _time_unit(seconds: float) -> tuple[float, str]:
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return factor, unit
    return 1e6, "µs"


def _stage_legend(floor: bool) -> list[Artist]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Artist] = [
        Patch(facecolor=_QUIET, edgecolor=_QUIET, label="compute"),
        Patch(facecolor=f"{_QUIET}40", edgecolor=_QUIET, hatch="////", label="communication"),
        Line2D([], [], color=_INK, linewidth=1, label="pace of the slowest stage"),
    ]
    if floor:
        dashed = Line2D([], [], color=_ACCENT, linewidth=1, linestyle="--", label="longest allowed")
        handles.append(dashed)
    return handles


def _label_layers(axes: Axes, problem: Problem) -> None:
    names = [layer.name for layer in problem.profile.layers]
    axes.set_xticks([index + 0.5 for index in range(len(names))], names)
    axes.tick_params(axis="x", length=0)
    if sum(len(name) + 2 for name in names) > 110:
        for label in axes.get_xticklabels():
            label.set(rotation=60, ha="right", rotation_mode="anchor", fontsize=8)


def _draw_frontier(axes: Axes, problem: Problem, plan: Plan, frontier: Frontier) -> None:
    """The cheapest cost at each floor is a staircase through the plans."""
    points = [(p.throughput, p.cost) for p in frontier.plans if p.throughput is not None]
    speeds, costs = [speed for speed, _ in points], [cost for _, cost in points]
    axes.step(speeds, costs, where="pre", color=_QUIET, linewidth=1)
    axes.plot(speeds, costs, "o", color=_INK, markersize=4, label="cheapest at its speed")
    if plan.throughput is not None:
        axes.plot(
            plan.throughput,
            plan.cost,
            "*",
            color=_COLOURS[1],
            markersize=15,
            markeredgecolor=_INK,
            markeredgewidth=0.6,
            label="this plan",
        )
    floor = problem.workload.min_throughput
    if floor > 0:
        axes.axvline(floor, color=_ACCENT, linewidth=1, linestyle="--", label="floor")
    axes.set_xlim(0, None)
    axes.set_ylim(0, None)
    axes.set_title("What speed costs")
    axes.set_xlabel("samples/s")
    axes.set_ylabel("dollars")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(color="#eeeeee")
    axes.set_axisbelow(True)
    axes.legend(loc="upper left", frameon=False)
