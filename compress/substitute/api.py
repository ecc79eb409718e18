"""Chooses substitutions by their measured time: `choose_substitutions` is what users call."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from artifacts.edits import apply_edits
from artifacts.errors import InputError
from artifacts.module_copy import copy_module
from compress.progress import Progress
from compress.substitute.called import describe_called, find_called
from compress.substitute.candidates import Candidate, find_candidates

LEAST_GAIN = 0.03
"""Smallest share of the latency that a substitution must save; less drowns in noise."""

AS_MODULES = (
    "have forward call a module of __init__ (self.act = nn.SiLU()) instead; one without "
    "weights leaves the state dict as it is"
)
"""What to do about activations that are called as functions."""

Clock = Callable[[Sequence[nn.Module]], list[float]]
"""Latency of each network in ms on the target, measured side by side."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One kind of operator, with and without its stand-in.

    Attributes:
        kind: see `Candidate`.
        count: operators of that kind.
        before_ms: latency with all that was kept so far.
        after_ms: with this substitution on top, in the same measurement.
        is_kept: whether it pays.
    """

    kind: str
    count: int
    before_ms: float
    after_ms: float
    is_kept: bool


@dataclass(frozen=True, kw_only=True)
class Substitution:
    """A network with cheaper operators.

    Attributes:
        module: a changed copy; its weights are those of the original.
        edits: to replay on the original network.
        trials: what was tried, in order.
        called: activations called as functions, which stay: see `find_called`.
    """

    module: nn.Module
    edits: tuple[dict[str, Any], ...]
    trials: tuple[Trial, ...]
    called: dict[str, tuple[str, ...]] = field(default_factory=dict)


def choose_substitutions(
    module: nn.Module,
    clock: Clock,
    kinds: Sequence[str] | None = None,
    *,
    inputs: tuple[Tensor, ...] = (),
    progress: Progress | None = None,
) -> Substitution:
    """Tries each kind of operator on top of those that paid, and keeps what pays.

    Args:
        module: left as it is.
        clock: measures networks on the target, in the form in which they will run there.
        kinds: to try; None for all there are.
        inputs: arguments of the network, to see what it calls as functions; without them that is
            not looked for.
        progress: told ("measure", kinds done, kinds in all).

    Raises:
        InputError: the network has nothing to substitute, or not a kind that was asked for.
    """
    called = find_called(module, inputs) if inputs else {}
    candidates = _wanted(find_candidates(module), kinds, called)
    current = copy_module(module)
    edits: list[dict[str, Any]] = []
    trials: list[Trial] = []
    for done, candidate in enumerate(candidates):
        if progress is not None:
            progress("measure", done, len(candidates))
        changed = apply_edits(copy_module(current), candidate.edits())
        before_ms, after_ms = clock([current, changed])
        pays = after_ms <= (1 - LEAST_GAIN) * before_ms
        trials.append(
            Trial(
                kind=candidate.kind,
                count=len(candidate.modules),
                before_ms=before_ms,
                after_ms=after_ms,
                is_kept=pays,
            )
        )
        if pays:
            current = changed
            edits += candidate.edits()
    if progress is not None:
        progress("measure", len(candidates), len(candidates))
    return Substitution(module=current, edits=tuple(edits), trials=tuple(trials), called=called)


def _wanted(
    candidates: list[Candidate],
    kinds: Sequence[str] | None,
    called: Mapping[str, tuple[str, ...]],
) -> list[Candidate]:
    there = [candidate.kind for candidate in candidates]
    functions = {kind: names for kind, names in called.items() if kinds is None or kind in kinds}
    seen = f"; called as functions: {describe_called(functions)}" if functions else ""
    fix = AS_MODULES if functions else ""
    if not candidates:
        raise InputError(
            f"the network has no operator with a cheaper stand-in{seen}",
            "SiLU, hard-swish, GELU, PReLU or squeeze-and-excite as modules",
            fix,
        )
    for kind in kinds or ():
        if kind not in there:
            raise InputError(
                f"the network has no '{kind}' as a module{seen}", f"one of {', '.join(there)}", fix
            )
    return [one for one in candidates if kinds is None or one.kind in kinds]
