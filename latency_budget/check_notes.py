"""Notes on a report's limits: those that were cut, and what was not judged."""

from latency_budget.budget import Budget


def describe_limits(budget: Budget, mode: str | None) -> list[str]:
    """Returns notes on a deadline that is cut to the period, and on heads that are off.

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
    if mode:
        heads = budget.modes[mode]
        free = ", ".join(head for head in heads if head not in budget.heads)
        unjudged = f" Without a contract, so not judged: {free}." if free else ""
        notes.append(f"Mode {mode}: only {', '.join(heads)} on.{unjudged}")
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
