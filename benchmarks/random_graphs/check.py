"""Draws a graph, quantizes it, and compares the runtime with what the quantized file says."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx

from artifacts.errors import FramefitError, InputError
from benchmarks.random_graphs.blocks import BLOCKS
from benchmarks.random_graphs.draft import PICTURE, Draft, UnfitError
from benchmarks.random_graphs.operators import LAYERS, OPERATORS, Draw, conv
from compress.model_runner import open_runner
from compress.quantize.api import quantize_model
from compress.quantize.settings import QuantizeSettings
from compress.sqnr import SignalToNoise
from engines.backends.ort import OrtSession
from engines.backends.ov import OpenVinoSession
from framefit.network_session import open_in_memory

SAMPLES = 3
MARGIN_DB = 3.0
"""By so much less than quantization costs may the runtime differ from the file."""
ENOUGH_DB = 45.0
"""A rounding that goes the other way in a second layer leaves little more."""
RUNTIMES = {"tensorrt": "openvino", "openvino": "openvino", "onnxruntime": "onnxruntime"}
"""Where the files of a target run."""
NOTHING = 1e-9
"""A gate that is shut leaves less of a tensor, of which no decibels count."""
AS_WRITTEN = {"DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
"""Keeps OpenVINO from rounding what layers with integer weights alone read in float: groups of 32
values to 8 bits as the network runs, on processors with VNNI or AMX."""
ORT_AS_WRITTEN = ("session.qdq_matmulnbits_accuracy_level", "1")
"""Keeps onnxruntime from the same with what MatMuls read."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a graph.

    Attributes:
        seed: that it was drawn with.
        names: of its layers and operators.
        verdict: "right", "nothing" to quantize, "refused", or what is wrong.
        detail: figures, or the message.
    """

    seed: int
    names: tuple[str, ...]
    verdict: str
    detail: str = ""

    @property
    def is_wrong(self) -> bool:
        """Whether it has to be looked into."""
        return self.verdict not in ("right", "nothing", "refused")


def draw_chain(seed: int) -> Draft:
    """Returns a graph of one layer or two, with one to five operators behind them."""
    draft = Draft(np.random.default_rng(seed))
    parts = draft.rng.integers(1, 4), draft.rng.integers(0, 3)
    for count in parts[: 1 + int(draft.rng.random() < 0.6)]:
        _draw(draft, LAYERS)
        for _ in range(count):
            _draw(draft, OPERATORS)
    return draft


def draw_blocks(seed: int) -> Draft:
    """Returns a graph of a Conv and one to three blocks, with operators between some of them.

    Half of what stands between two blocks is a result of the graph too.
    """
    draft = Draft(np.random.default_rng(seed))
    _draw(draft, {"conv": conv})
    for _ in range(int(draft.rng.integers(1, 4))):
        if draft.rng.random() < 0.5:
            draft.kept.append(draft.end)
        if draft.rng.random() < 0.4:
            _draw(draft, OPERATORS)
        _draw(draft, BLOCKS)
    return draft


GRAPHS: dict[str, Callable[[int], Draft]] = {"chain": draw_chain, "blocks": draw_blocks}


def _draw(draft: Draft, rules: dict[str, Draw]) -> None:
    """Draws what fits, or nothing after some tries."""
    for _ in range(10):
        name, size = str(draft.rng.choice([*rules])), draft.size
        try:
            return draft.finish(name, rules[name](draft))
        except UnfitError:
            draft.undo_to(size)
    return None


def settings_for(settings: QuantizeSettings, target: str) -> QuantizeSettings:
    """Returns settings for a target by which small layers are quantized too."""
    has_borders = True if target == "onnxruntime" else None
    return replace(settings, target=target, integer_borders=has_borders)


def draw_samples(seed: int) -> list[dict[str, np.ndarray]]:
    """Returns the inputs of the graph of a seed."""
    rng = np.random.default_rng(seed)
    return [{"x": rng.standard_normal(PICTURE, np.float32)} for _ in range(SAMPLES)]


def check_graph(seed: int, settings: QuantizeSettings, kind: str = "chain") -> Outcome:
    """Returns what became of the graph of a seed.

    Args:
        seed: draws the graph, and its inputs.
        settings: how it is quantized, and for which target.
        kind: of `GRAPHS`.
    """
    draft = GRAPHS[kind](seed)
    names, model = tuple(draft.names), draft.to_model()
    samples = draw_samples(seed)
    runtime = RUNTIMES[settings.target]
    try:
        _run(model, samples[0], runtime)
    except FramefitError as error:
        return Outcome(seed=seed, names=names, verdict="refused", detail=str(error))
    try:
        quantized = quantize_model(model, samples, settings)
    except InputError as error:
        is_nothing = "nothing" in str(error)
        verdict = "nothing" if is_nothing else "not quantized"
        return Outcome(seed=seed, names=names, verdict=verdict, detail=str(error))
    try:
        got = _run(quantized.model, samples[0], runtime)
    except FramefitError as error:
        return Outcome(seed=seed, names=names, verdict="not opened", detail=str(error))
    wanted, said = (open_runner(item)(samples[0]) for item in (model, quantized.model))
    found = [_compare(*(results[name] for results in (wanted, said, got))) for name in got]
    verdict, detail = next((item for item in found if item[0] != "right"), found[-1])
    return Outcome(seed=seed, names=names, verdict=verdict, detail=detail)


def _run(
    model: onnx.ModelProto, sample: dict[str, np.ndarray], runtime: str
) -> dict[str, np.ndarray]:
    with (
        patch.object(OpenVinoSession, "extra_config", AS_WRITTEN),
        patch.object(OrtSession, "_prepare", _compute_as_written),
    ):
        session = open_in_memory(model, runtime)
    result = session.run(sample)
    session.close()
    return result


def _compute_as_written(session: OrtSession, options: Any) -> None:
    del session
    options.add_session_config_entry(*ORT_AS_WRITTEN)


def _compare(wanted: np.ndarray, said: np.ndarray, got: np.ndarray) -> tuple[str, str]:
    """Returns the verdict and its details."""
    if got.shape != said.shape:
        return "other shape", f"{got.shape} instead of {said.shape}"
    quality_db, parity_db = _to_db(wanted, said), _to_db(said, got)
    detail = f"parity {parity_db:.1f} dB, quality {quality_db:.1f} dB"
    is_right = parity_db >= min(quality_db - MARGIN_DB, ENOUGH_DB)
    is_right |= bool(np.allclose(said, got, rtol=0, atol=NOTHING))
    return "right" if is_right else "miscomputed", detail


def _to_db(wanted: np.ndarray, got: np.ndarray) -> float:
    sums = SignalToNoise()
    sums.update(wanted, got)
    return sums.sqnr_db
