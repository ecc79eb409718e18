"""Writes a budget from a measurement: what the machine does now, with a margin."""

import json
import math

import numpy as np

from latency_budget.budget import FrameBudget
from latency_budget.run import DROPPED_NS, Run
from latency_budget.statistics import bound_ns, percentile_ns
from latency_budget.tiers import TIERS

MARGIN = 1.1


def render_budget(
    run: Run, *, rate_hz: float, margin: float = MARGIN, heads: tuple[str, ...] = ()
) -> str:
    """Returns the text of a budget.toml whose stages `run` keeps, as far as the deadline allows.

    Each stage gets what its P99 is at most (95 % confidence; of too few frames, the P99 itself)
    times `margin`, and no more than the deadline; the deadline is the frame period, rounded down to
    0.1 ms. What was measured stands beside the limits that do not follow from it.

    Args:
        run: the measured frames, at least one of which was processed.
        rate_hz: the camera's rate.
        margin: factor on what was measured, at least 1.
        heads: of the measured network; their contracts are written as comments, since no
            measurement of time knows a metric.
    """
    deadline_ms = math.floor(10_000 / rate_hz) / 10
    latency = np.sort(run.latency_ns)
    slowest = int(latency[latency < DROPPED_NS][-1])
    p99_ns = percentile_ns(latency, 0.99) or slowest
    p50_ns = percentile_ns(latency, 0.5) or slowest
    late = ", so these frames miss it" if p99_ns > deadline_ms * 1e6 else ""
    dropped = int(run.dropped.sum())
    late += f"; {dropped} frames were dropped" if dropped else ""
    jitter = p99_ns / max(p50_ns, 1)
    uneven = ", so these frames break it" if jitter > FrameBudget.p99_over_p50 else ""
    lines = [
        f"# From {run.count} measured frames; the budget of a stage is what its P99 is at most "
        f"(95 % confidence), times {margin:g}.",
        "",
        "[frame]",
        f"rate_hz = {rate_hz:g}",
        f"deadline_ms = {deadline_ms:g}   # measured P99: {p99_ns / 1e6:.2f}{late}",
        f"p99_over_p50 = {FrameBudget.p99_over_p50:g}   # measured: {jitter:.2f}{uneven}",
        "max_consecutive_misses = 2",
        "",
        "[stages]",
    ]
    for name in run.stage_names:
        ordered = np.sort(run.stage_ns(name))
        worst = bound_ns(ordered, 0.99, 0.95, upper=True) or percentile_ns(ordered, 0.99)
        lines.append(_stage_line(name, (worst or int(ordered[-1])) / 1e6, margin, deadline_ms))
    for head in heads:
        lines += [
            "",
            f"# [heads.{json.dumps(head)}]",
            '# metric = "mAP50"   # mIoU, abs_rel …',
            "# max_drop = 0.01",
        ]
    lines += ["", "[tiers.pr]", f"frames = {TIERS['pr'].frames}"]
    return "\n".join(lines) + "\n"


def _stage_line(name: str, measured_ms: float, margin: float, deadline_ms: float) -> str:
    """Returns the line of a stage's budget; none is longer than the frame may take."""
    limit_ms = max(0.01, math.ceil(measured_ms * margin * 100) / 100)
    if limit_ms <= deadline_ms:
        return f"{json.dumps(name)} = {limit_ms:g}"
    late = ", so these frames break it" if measured_ms > deadline_ms else ""
    return (
        f"{json.dumps(name)} = {deadline_ms:g}   # the deadline; measured: {measured_ms:.2f}{late}"
    )
