"""The paper's provisioner: stages made equally fast with continuous units, then rounded.

With the throughputs of all stages equal, the units of one stage determine those of all others. The
period W they share stands for k_1 here: the two are one to one wherever stage 1 divides over units,
and W also serves where it does not. In W the continuous cost is convex, and Newton's method on its
derivative finds its minimum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from heterps.planning.kernel import Kernel
from heterps.planning.stage_time import SLACK, StageTime, within_limits

_STEPS = 200
_PRECISE = 1e-12


def balanced_units(kernel: Kernel, stages: Sequence[StageTime]) -> list[int]:
    """Whole units within the limits that keep the floor, for stages that can have such."""
    high = min(max(stage.period(1) for stage in stages), kernel.max_period_s)
    low = min(_shortest(kernel, stages, high), high)

    def slopes(period: float) -> tuple[float, float]:
        pairs = [_slopes(stage, float(kernel.price[stage.type]), period) for stage in stages]
        return kernel.overhead + sum(first for first, _ in pairs), sum(
            second for _, second in pairs
        )

    return _rounded(kernel, stages, _cheapest_period(slopes, low, high), high)


def _shortest(kernel: Kernel, stages: Sequence[StageTime], high: float) -> float:
    """The shortest period that continuous units keep within the limits."""

    def fits(period: float) -> bool:
        return within_limits(kernel, stages, [stage.units(period) for stage in stages])

    return _bisect(fits, max(stage.serial_s for stage in stages), high)


def _slopes(stage: StageTime, price: float, period: float) -> tuple[float, float]:
    """First and second derivative of price · period · units, which on a side that binds is
    price · (parallel + parallel · serial / (period - serial)).
    """
    need, slope, curvature = 1.0, 1.0, 0.0
    for serial, parallel in stage.sides:
        left = period - serial
        if parallel > need * left:
            need = parallel / left
            slope = -parallel * serial / left**2
            curvature = 2 * parallel * serial / left**3
    return price * slope, price * curvature


def _cheapest_period(
    slopes: Callable[[float], tuple[float, float]], low: float, high: float
) -> float:
    """Newton's method on the slope of the cost, kept inside a bracket that shrinks."""
    if low >= high or slopes(high)[0] <= 0:
        return high
    if slopes(low)[0] >= 0:
        return low
    period = (low + high) / 2
    for _ in range(_STEPS):
        slope, curvature = slopes(period)
        low, high = (low, period) if slope > 0 else (period, high)
        step = period - slope / curvature if curvature > 0 else low
        if not low < step < high:
            step = (low + high) / 2
        if abs(step - period) <= _PRECISE * period:
            break
        period = step
    return period


def _rounded(kernel: Kernel, stages: Sequence[StageTime], period: float, high: float) -> list[int]:
    """Up to whole units; where those break a limit, at the next longer period where they do not."""

    def units(period: float) -> list[int]:
        return [stage.whole_units(period, int(kernel.limit[stage.type])) for stage in stages]

    return units(_bisect(lambda period: within_limits(kernel, stages, units(period)), period, high))


def _bisect(fits: Callable[[float], bool], low: float, high: float) -> float:
    """The smallest period from ``low`` to ``high`` that fits, where every longer one does too."""
    if fits(low):
        return low
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if high - low <= SLACK * high or not low < middle < high:
            break
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
