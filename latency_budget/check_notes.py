"""Notes on a report's limits: those that were cut, and what was not judged."""

from latency_budget.budget import Budget

_LOOSE_RATIO = 2.0
"""Beyond this P99/P50 is no limit of jitter; the example has 1.2."""


def describe_limits(budget: Budget, mode: str | None) -> list[str]:
    """Returns notes on a deadline that is cut, limits that hardly limit, and heads that are off.

    Args:
        budget: of the whole frame.
        mode: a driving mode of it; None for every head.
    """
    notes, frame = [], budget.frame
    if frame.deadline_ns < round(frame.deadline_ms * 1e6):
        notes.append(
            f"The deadline of {frame.deadline_ms:g} ms is longer than a frame period at "
            f"{frame.rate_hz:g} Hz: {frame.deadline_ns / 1e6:.4g} ms are judged."
        )
    notes += _describe_loose(budget)
    if mode:
        heads = budget.modes[mode]
        free = ", ".join(head for head in heads if head not in budget.heads)
        unjudged = f" Without a contract, so not judged: {free}." if free else ""
        notes.append(f"Mode {mode}: only {', '.join(heads)} on.{unjudged}")
    return notes


def _describe_loose(budget: Budget) -> list[str]:
    """Returns notes on limits that let nearly everything pass, as a slip in their unit does."""
    notes, frame = [], budget.frame
    deadline_ms = frame.deadline_ns / 1e6
    if frame.p99_over_p50 > _LOOSE_RATIO:
        percent = frame.p99_over_p50
        hint = f" If {percent:g} % is meant, write {1 + percent / 100:g}." if percent >= 5 else ""
        notes.append(f"p99_over_p50 = {percent:g} lets P99 be {percent:g} times P50.{hint}")
    if frame.jitter_floor_ms >= deadline_ms:
        notes.append(
            f"jitter_floor_ms = {frame.jitter_floor_ms:g} is not below the deadline of "
            f"{deadline_ms:.4g} ms: jitter is as good as not judged."
        )
    if frame.max_consecutive_misses > frame.rate_hz:
        seconds = frame.max_consecutive_misses / frame.rate_hz
        notes.append(
            f"max_consecutive_misses = {frame.max_consecutive_misses} lets {seconds:.3g} s of "
            "frames be missed in a row."
        )
    loose = [name for name, limit_ms in budget.stages.items() if limit_ms > deadline_ms]
    if loose:
        notes.append(f"Beyond the deadline of {deadline_ms:.4g} ms: stage {', '.join(loose)}.")
    return notes


def describe_part(whole: Budget, part: Budget, names: tuple[str, ...]) -> str:
    """Returns what was measured of a frame, and what of its budget was not judged.

    Args:
        whole: the frame's budget.
        part: that of the measured stages.
        names: of these.
    """
    others = [name for name in whole.stages if name not in names]
    unjudged = [f"stage {name}" for name in others]
    unjudged += [f"head {name}" for name in whole.heads if name not in part.heads]
    note = f"Only {', '.join(names)} was measured, not the whole frame"
    if others:
        note += (
            f": its limit of {part.frame.deadline_ms:g} ms is what the other stages' budgets leave "
            f"of {whole.frame.deadline_ns / 1e6:g} ms"
        )
    return note + (f". Not judged: {', '.join(unjudged)}." if unjudged else ".")
