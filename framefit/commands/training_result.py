"""What the commands that train say of their result."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from compress.distill.api import DistillResult
    from compress.train.rate_choice import RateChoice


class Outcome(Protocol):
    """What a training job hands back."""

    def to_dict(self) -> dict[str, Any]:
        """Returns it for `--json`."""


T = TypeVar("T", bound=Outcome)


def show_once(outcome: T, json_file: Path | None, show: Callable[[T], None]) -> None:
    """Writes `--json` and prints, in the first of the training's processes only."""
    from artifacts.atomic import write_json
    from compress.train.launch import is_first_process

    if not is_first_process():
        return
    if json_file is not None:
        write_json(json_file, outcome.to_dict())
    show(outcome)


def print_losses(title: str, result: "DistillResult") -> None:
    """Prints the loss of each output before and after."""
    from framefit.table import print_table

    print_table(
        (title, "before", "after"),
        (
            (name, f"{value:.3g}", f"{result.losses_after[name]:.3g}")
            for name, value in result.losses_before.items()
        ),
    )


def describe_run(result: "DistillResult") -> str:
    """Returns how long it trained and what came of it."""
    earlier = f" ({result.resumed_step} of them in a run before)" if result.resumed_step else ""
    steps = f"{result.steps} steps{earlier}, best at step {result.best_step}"
    obstacle = result.obstacle
    if obstacle is not None:
        tried = bool(result.rate.trials)
        advice = "more --steps" if tried else "a lower --learning-rate or more --steps"
        steps += (
            f" (what was learned is not taken: the loss of '{obstacle.loss}' rose from "
            f"{obstacle.before:.3g} to {obstacle.after:.3g}; {advice} may get further)"
        )
    return f"{steps}, {describe_rate(result.rate)}, {describe_score(result)}"


def describe_rate(choice: "RateChoice") -> str:
    """Returns the learning rate and where it comes from."""
    fallen = "".join(f", {rate:.2g} from step {step}" for step, rate in choice.fallen)
    return f"learning rate {choice.rate:g} ({choice.reason}{fallen})"


def describe_score(result: "DistillResult") -> str:
    """Returns the probe's score before and after."""
    return f"score {result.score_before:.3f} -> {result.score_after:.3f} (lower is better)"
