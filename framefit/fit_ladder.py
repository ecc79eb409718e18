"""Which network keeps a budget and loses least: the rungs of `framefit fit`, and when to climb.

1. the float network, which loses nothing;
2. integers, with as many of the costliest layers in float as the latency leaves time for;
3. where the weights can be trained, fewer channels, as many as integers need to be fast enough,
   distilled from the original, and integers.

The first rung that keeps the budget is taken, or that keeps it as far as it was measured: where
only frames are missing for a proof, a faster network has no more of them. On a machine that is too
disturbed to measure, a network is measured again, and where that does not help, no rung is left
behind: the ladder ends there. A search sees latencies back to back, a budget limits
the P99 of frames at the camera's rate: between the two lies what the machine adds, which is
measured with each network that is judged and put into the goal of the next.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from artifacts.errors import MissingExtraError
from compress.errors import FastEnoughError, LatencyError
from latency_budget.gate import Verdict
from latency_budget.report import Report

TYPICAL_SPREAD = 1.15
"""P99 at the camera's rate beside the lower quartile back to back, before any was measured."""
MARGIN = 0.97
"""A goal is set so much below what would just do."""
INTEGER_ROUNDS, NARROW_ROUNDS = 3, 3
MEASUREMENTS = 3
"""Of one network, at most, where the machine is disturbed."""
LATENCY_GATES = ("frame P99", "stage network P99")


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A network that was judged.

    Attributes:
        name: what was done to it.
        artifact: its file.
        latency_ms: what it took back to back when it was made.
        report: its budget check.
    """

    name: str
    artifact: Path
    latency_ms: float
    report: Report

    @property
    def keeps(self) -> bool | None:
        """Whether it is fast enough, with the confidence of the tier; None where nothing is shown.

        That is so on a machine that was too disturbed, and after too few frames.
        """
        verdicts = {gate.verdict for gate in self.report.gates if gate.name in LATENCY_GATES}
        if self.is_invalid or (Verdict.FAIL not in verdicts and verdicts != {Verdict.PASS}):
            return None
        return Verdict.FAIL not in verdicts

    @property
    def is_invalid(self) -> bool:
        """Whether the machine was too disturbed for any answer."""
        return self.report.verdict is Verdict.INVALID

    @property
    def bound_ms(self) -> float:
        """The upper bound of the network's P99; of few frames, the longest."""
        variant = self.report.variants[-1]
        bound = variant.details.get("p99_upper_ms")
        return float(bound if bound is not None else variant.frame_ms["max"])


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """What the ladder led to.

    Attributes:
        tried: every network that was judged, in order.
        chosen: the one that keeps the budget, or for whose proof only frames are missing; None
            where there is none.
        notes: why rungs were left out or left behind.
        lacks_extra: a rung was left out because a package for it is not installed.
    """

    tried: tuple[Tried, ...]
    chosen: Tried | None
    notes: tuple[str, ...]
    lacks_extra: bool = False

    @property
    def is_undecided(self) -> bool:
        """Whether a network might keep the budget that this machine could not make or measure."""
        is_invalid = bool(self.tried) and self.tried[-1].is_invalid
        return self.chosen is None and (self.lacks_extra or is_invalid)

    @property
    def is_inconclusive(self) -> bool:
        """Whether a network might keep the budget of which too few frames were measured."""
        return self.chosen is None and any(item.keeps is None for item in self.tried)


class Workshop(Protocol):
    """Makes and judges the networks of one ladder."""

    is_trainable: bool

    def tell(self, line: str) -> None:
        """Shows what the ladder comes to and why it leaves it, while it climbs."""

    def time_float(self) -> float:
        """Returns the float network's latency back to back, in ms."""

    def judge_float(self, latency_ms: float) -> Tried:
        """Judges the float network, which takes so long back to back."""

    def judge_again(self, tried: Tried) -> Tried:
        """Measures a network once more."""

    def fit_integers(self, source: Path | None, within_ms: float, name: str) -> Tried:
        """Quantizes a network (None: the original) to a latency, and judges it.

        Raises:
            LatencyError: no network is that fast.
        """

    def narrow(self, int8_ms: float) -> Path:
        """Returns the original with fewer channels, so fast once it is in INT8, distilled.

        Raises:
            LatencyError: the narrowest network is not that fast.
            FastEnoughError: the original is that fast.
            MissingExtraError: nothing can be distilled here.
        """


@dataclass
class _Climb:
    workshop: Workshop
    limit_ms: float
    tried: list[Tried] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    within_ms: float = 0.0
    lacks_extra: bool = False

    @property
    def is_disturbed(self) -> bool:
        """Whether the last measurement says nothing."""
        return bool(self.tried) and self.tried[-1].is_invalid

    def note(self, line: str) -> None:
        """Keeps why a rung was left out or left behind, and shows it at once."""
        self.notes.append(line)
        self.workshop.tell(line)

    def attempt(self, make: Callable[[], Tried]) -> Tried | None:
        """Judges a network; returns it if it keeps the budget, as far as it was measured."""
        found = make()
        for _ in range(MEASUREMENTS - 1):
            if found.is_invalid:
                found = self.workshop.judge_again(found)
        self.tried.append(found)
        if found.is_invalid:
            self.note(f"{found.name}: the machine was too disturbed to measure it")
            return None
        if found.keeps:
            return found
        if found.keeps is None and found.bound_ms <= self.limit_ms:
            self.note(
                f"{found.name}: fast enough in the frames that were measured, too few to prove it"
            )
            return found
        self.note(f"{found.name}: P99 at most {found.bound_ms:.2f} ms")
        return None

    def fit_integers(self, source: Path | None, name: str) -> tuple[Tried | None, float]:
        """Returns the network that keeps the budget, or None and what the fastest takes, in ms."""
        for _ in range(INTEGER_ROUNDS):
            goal_ms = self.within_ms
            self.workshop.tell(f"{name}: looking for a network within {goal_ms:.2f} ms")
            try:
                found = self.attempt(partial(self.workshop.fit_integers, source, goal_ms, name))
            except LatencyError as error:
                self.note(
                    f"{name}: the fastest network takes {error.fastest_ms:.2f} ms, "
                    f"{goal_ms:.2f} would do"
                )
                return None, error.fastest_ms
            if found is not None or self.is_disturbed:
                break
            self.lower_goal()
        return found, self.tried[-1].latency_ms

    def lower_goal(self) -> None:
        """Asks of the next network what would have let the last one keep the budget."""
        last = self.tried[-1]
        self.within_ms = MARGIN * last.latency_ms * min(self.limit_ms / last.bound_ms, 1.0)


def climb(workshop: Workshop, limit_ms: float) -> Fitted:
    """Tries rung after rung until a network keeps the budget.

    Args:
        workshop: makes and judges networks.
        limit_ms: what the budget leaves for the network's P99.
    """
    state = _Climb(workshop, limit_ms, within_ms=limit_ms / TYPICAL_SPREAD)
    float_ms = workshop.time_float()
    chosen: Tried | None = None
    if float_ms < limit_ms:
        workshop.tell(f"float: {float_ms:.2f} ms back to back; checking it at the camera's rate")
        chosen = state.attempt(partial(workshop.judge_float, float_ms))
        state.lower_goal()
    else:
        state.note(f"float: {float_ms:.2f} ms back to back, {limit_ms:.2f} are allowed")
    if chosen is None and not state.is_disturbed:
        chosen, _ = state.fit_integers(None, "INT8")
        if chosen is None and not state.is_disturbed:
            chosen = _narrow(state)
    return Fitted(
        tried=tuple(state.tried),
        chosen=chosen,
        notes=tuple(state.notes),
        lacks_extra=state.lacks_extra,
    )


def _narrow(state: _Climb) -> Tried | None:
    """Takes channels out until integers keep the budget."""
    if not state.workshop.is_trainable:
        state.note(
            "fewer channels: only a network whose weights can be trained (.pt, .safetensors) is "
            "pruned and distilled"
        )
        return None
    margin = MARGIN
    for _ in range(NARROW_ROUNDS):
        aim_ms = margin * state.within_ms
        state.workshop.tell(
            f"fewer channels: pruning until INT8 takes {aim_ms:.2f} ms, then distilling; this is "
            "the longest part"
        )
        try:
            source = state.workshop.narrow(aim_ms)
        except LatencyError as error:
            state.note(
                f"fewer channels: the narrowest network takes {error.fastest_ms:.2f} ms, "
                f"{aim_ms:.2f} would do"
            )
            return None
        except FastEnoughError as error:
            margin = MARGIN * error.latency_ms / state.within_ms
            continue
        except MissingExtraError as error:
            state.note(f"fewer channels: {error}")
            state.lacks_extra = True
            return None
        chosen, fastest_ms = state.fit_integers(source, f"narrowed to {aim_ms:.2f} ms, INT8")
        if chosen is not None or state.is_disturbed:
            return chosen
        margin *= min(aim_ms / fastest_ms, 1.0)
    return None
