"""Measures a network in other shapes: without a head, or with a backbone for each head."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from artifacts.onnx_file import load_onnx
from artifacts.ownership import read_heads
from engines.random_feeds import random_feeds
from engines.runtimes import Session, SessionSettings
from framefit.hang_watch import HangWatch
from latency_budget.driving_mode import cut_to_heads
from latency_budget.measure import MeasureSettings, measure_closed
from latency_budget.network import network_stage
from latency_budget.report import NETWORK_STAGE
from latency_budget.report_extras import StageOption

Progress = Callable[[str, int, int], None]

ROUNDS = 5
MOST_HEADS_COMBINED = 3
"""With more heads than this, only one is left out at a time."""
ON, OFF = "on", "off"
PRECISION, BACKBONE = "precision", "backbone"
SHARED, SEPARATE = "shared", "one per head"


@dataclass(frozen=True)
class _Shape:
    """One shape of the network: the heads of each of its parts, which run one after another."""

    settings: Mapping[str, str]
    parts: tuple[tuple[str, ...], ...]


def measure_options(
    models: Mapping[str, Path],
    settings: SessionSettings,
    *,
    watch: HangWatch,
    runtime: str | None = None,
    runs: int = 300,
    progress: Progress | None = None,
) -> list[StageOption]:
    """Measures a network's shapes back to back, in turns, so that their ratios hold.

    The shapes: all heads on one shared backbone, without each combination of heads, and with a
    backbone of its own for each head (the cut networks run one after another).

    Args:
        models: an `.onnx` file per name of its precision, the one that ships last.
        settings: threads and input shapes.
        watch: ends the process where a runtime hangs.
        runtime: a name of `BACKENDS`; None for the file's own.
        runs: timed runs of each shape.
        progress: told (what, done, total) between the turns.

    Returns:
        one option of the stage "network" per shape and model, the shipped one last.

    Raises:
        InputError: a file is no such model, the models have different heads, or too few runs.
    """
    if runs < ROUNDS:
        raise InputError(f"--runs is {runs}", f"at least {ROUNDS}")
    heads = _common_heads(models)
    plan = [(name, shape) for name in models for shape in _shapes(name, heads)]
    samples: list[list[NDArray[np.int64]]] = [[] for _ in plan]
    with _opened(models, plan, partial(watch.open, runtime=runtime, settings=settings)) as chains:
        for turn in range(ROUNDS):
            share = runs // ROUNDS + (turn < runs % ROUNDS)
            for index, chain in enumerate(chains):
                samples[index].append(_time_chain(chain, share, watch, is_cold=turn == 0))
            if progress is not None:
                progress("measure the network's shapes in turns", turn + 1, ROUNDS)
    return [
        StageOption.from_samples(NETWORK_STAGE, shape.settings, np.concatenate(parts))
        for (_, shape), parts in zip(plan, samples, strict=True)
    ]


def _common_heads(models: Mapping[str, Path]) -> tuple[str, ...]:
    found = {name: tuple(read_heads(load_onnx(path))) for name, path in models.items()}
    if not found:
        raise InputError("no model was given", "NAME=model.onnx")
    if len(set(found.values())) > 1:
        raise InputError(f"the models have different heads: {found}", "the same heads")
    return next(iter(found.values()))


def _shapes(precision: str, heads: tuple[str, ...]) -> list[_Shape]:
    """All shapes of one model; the whole one comes last."""
    kept: list[tuple[str, ...]] = []
    if len(heads) > 1:
        fewest = 1 if len(heads) <= MOST_HEADS_COMBINED else len(heads) - 1
        kept = [part for count in range(fewest, len(heads)) for part in combinations(heads, count)]

    def settings(part: tuple[str, ...], backbone: str) -> dict[str, str]:
        switches = {head: ON if head in part else OFF for head in heads} if kept else {}
        return {PRECISION: precision, BACKBONE: backbone, **switches}

    shapes = [_Shape(settings(part, SHARED), (part,)) for part in kept]
    if len(heads) > 1:
        shapes.append(_Shape(settings(heads, SEPARATE), tuple((head,) for head in heads)))
    return [*shapes, _Shape(settings(heads, SHARED), (heads,))]


@contextmanager
def _opened(
    models: Mapping[str, Path],
    plan: Sequence[tuple[str, _Shape]],
    open_network: Callable[[Path], Session],
) -> Iterator[list[list[Session]]]:
    """Yields the sessions of each shape; a part that several shapes have is opened once."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        known: dict[tuple[str, tuple[str, ...]], Session] = {}
        for number, key in enumerate((name, part) for name, shape in plan for part in shape.parts):
            if key not in known:
                name, part = key
                path = cut_to_heads(models[name], part, folder / f"{number}.onnx")
                known[key] = stack.enter_context(open_network(path))
        yield [[known[name, part] for part in shape.parts] for name, shape in plan]


def _time_chain(
    chain: Sequence[Session], runs: int, watch: HangWatch, *, is_cold: bool
) -> NDArray[np.int64]:
    """Returns [runs] nanoseconds of all parts together, each run back to back."""
    total = np.zeros(runs, np.int64)
    for session in chain:
        what = f"{session.runtime} has not returned from running a shape of the network"
        with watch.during_many(what, is_cold=is_cold) as pulse:
            timing = MeasureSettings(frames=runs, warmup_frames=3, pulse=pulse)
            run = measure_closed([network_stage(session)], random_feeds(session), timing)
        total += run.latency_ns
    return total
