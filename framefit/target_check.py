"""Whether the target computes what a quantized network says.

A file says what its integers are; a runtime may have kernels that compute something else. The SQNR
of a quantization is that of the file, so it is measured on the target too, where that runs here.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import onnx
from numpy.typing import NDArray

from artifacts.errors import InputError, MissingExtraError
from artifacts.processor import PAIRED_SUMS, overflows_on_int8, read_flags
from artifacts.samples import pick_evenly
from compress.compare import compare_models
from compress.model_runner import Runner, with_outputs
from engines.session import Session
from framefit.network_session import open_in_memory

SAMPLES = 4
"""Calibration samples that are run, evenly spread."""
NOTICEABLE_DB = 3.0
CLEAN_DB = 50.0
"""SQNR from which kernels that approximate functions in float may disagree too."""

_log = logging.getLogger(__name__)
Samples = Sequence[dict[str, NDArray[Any]]]
Opener = Callable[[onnx.ModelProto], Session]


@dataclass(frozen=True, kw_only=True)
class TargetCheck:
    """What a quantized network computes on its target.

    Attributes:
        runtime: where it was run.
        samples: how many samples were run.
        outputs_db: SQNR of each output against the float network, in dB, and of their unlike parts.
        said_db: the same for the outputs that the target gets wrong, computed as the file says.
    """

    runtime: str
    samples: int
    outputs_db: dict[str, float]
    said_db: dict[str, float]


def check_on_target(
    reference: onnx.ModelProto,
    quantized: onnx.ModelProto,
    samples: Samples,
    runtime: str,
    expected_db: Mapping[str, float],
    open_network: Opener | None = None,
) -> TargetCheck:
    """Runs a quantized network on its target, and warns where it is worse than the file says.

    Args:
        reference: the float network.
        quantized: what was made of it.
        samples: those of the calibration.
        runtime: a name of `engines.runtimes.BACKENDS`.
        expected_db: SQNR of each output as it is known so far. Where the target comes close, what
            the file says of these samples is not computed.
        open_network: opens a network there, as `measure_on_target` takes it.

    Raises:
        InputError: the runtime does not open the network.
    """
    few = pick_evenly(samples, SAMPLES)
    got = measure_on_target(reference, quantized, few, runtime, open_network)
    said: dict[str, float] = {}
    if any(_is_worse(got[name], expected_db.get(name, CLEAN_DB)) for name in got):
        written = _read_db(compare_models(reference, quantized, few))
        said = {name: db for name, db in written.items() if _is_worse(got[name], db)}
    for name, db in said.items():
        _log.warning(
            "%s computes output '%s' at %.1f dB and not what the file says, %.1f dB: "
            "framefit export lint FILE --target %s may name the node, --keep-float excludes it",
            *(runtime, name, got[name], db, runtime),
        )
    if said and overflows_on_int8(read_flags()):
        _log.warning(
            "%s: they overflow unless the network is quantized with --weights int8-pairs",
            PAIRED_SUMS,
        )
    return TargetCheck(runtime=runtime, samples=len(few), outputs_db=got, said_db=said)


def measure_on_target(
    reference: onnx.ModelProto,
    quantized: onnx.ModelProto,
    samples: Samples,
    runtime: str,
    open_network: Opener | None = None,
) -> dict[str, float]:
    """Returns the SQNR in dB of each output that a runtime computes.

    Args:
        reference: the float network.
        quantized: what was made of it.
        samples: that are run.
        runtime: a name of `engines.runtimes.BACKENDS`.
        open_network: opens a network there, such as with a session that was kept; None opens anew.
    """
    open_network = open_network or partial(open_in_memory, runtime=runtime)
    with ExitStack() as stack:

        def open_there(model: onnx.ModelProto, watched: Sequence[str]) -> Runner:
            session = stack.enter_context(open_network(with_outputs(model, watched)))
            names = [item.name for item in session.inputs]
            return lambda feeds: session.run({name: feeds[name] for name in names})

        return _read_db(compare_models(reference, quantized, samples, open_candidate=open_there))


def warn_if_refused(quantized: onnx.ModelProto, target: str) -> None:
    """Warns where a network that was not timed is none that its target opens; runs nothing.

    Args:
        quantized: the network.
        target: a name of `compress.quantize.placement.PLACEMENTS`. TensorRT is not asked, nor a
            runtime that is not installed.
    """
    from engines.runtimes import BACKENDS

    if ".onnx" not in BACKENDS[target].suffixes:
        return
    try:
        open_in_memory(quantized, target).close()
    except MissingExtraError:
        return
    except InputError as error:
        _log.warning("%s: %s", error.what, error.fix)


def _read_db(comparison: Mapping[str, Mapping[str, Mapping[str, float]]]) -> dict[str, float]:
    measured = {**comparison["outputs"], **comparison["parts"]}
    return {name: figures["sqnr_db"] for name, figures in measured.items()}


def _is_worse(got_db: float, said_db: float) -> bool:
    return got_db < min(said_db, CLEAN_DB) - NOTICEABLE_DB
