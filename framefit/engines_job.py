"""The work of `framefit engines run`, `bench` and `compare`."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from artifacts.atomic import atomic_path
from artifacts.byte_inputs import read_byte_inputs
from artifacts.errors import InputError
from artifacts.input_spec import InputSpec
from artifacts.onnx_metadata import INPUT_SPEC_KEY, read_metadata
from artifacts.plan_manifest import read_manifest
from artifacts.samples import Samples, TensorShape, open_samples
from engines.random_feeds import random_feeds
from engines.runtimes import Session, SessionSettings
from framefit.hang_watch import HangWatch
from framefit.model_source import shapes_with_data
from framefit.spec_choice import choose_spec, count_channels
from framefit.workspace import Workspace
from latency_budget.measure import MeasureSettings, measure_closed
from latency_budget.network import network_stage
from latency_budget.statistics import percentile_ns

ROUNDS = 5
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}

Progress = Callable[[str, int, int], None]
Arrays = dict[str, NDArray[Any]]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Timing:
    """How long one network took, back to back.

    Attributes:
        path: the model or plan.
        description: what the session asked for and got.
        latencies_ns: [n] one per run, in order.
    """

    path: Path
    description: dict[str, Any]
    latencies_ns: NDArray[np.int64]

    def to_dict(self) -> dict[str, Any]:
        """Returns nearest-rank percentiles in ms (None with too few runs), for `--json`."""
        ordered = np.sort(self.latencies_ns)
        values = {name: percentile_ns(ordered, share) for name, share in QUANTILES.items()}
        return {
            "model": str(self.path),
            "session": self.description,
            "n": len(ordered),
            **{f"{name}_ms": None if ns is None else ns / 1e6 for name, ns in values.items()},
            "max_ms": int(ordered[-1]) / 1e6,
        }


def settle_shapes(settings: SessionSettings, path: Path, data: str) -> SessionSettings:
    """Returns settings that say the shapes of dynamic inputs too, where the data have some."""
    return replace(settings, input_shapes=shapes_with_data(path, settings.input_shapes, data))


def open_data(
    path: Path, session: Session, data: str, *, limit: int | None, spec_options: Mapping[str, Any]
) -> Samples:
    """Opens samples for a session; logs a warning where the input spec is assumed.

    Args:
        path: the session's model or plan, which may carry the input spec.
        session: tells the inputs.
        data: pictures, an `.npz`, or the name of a dataset in framefit.toml.
        limit: use at most this many.
        spec_options: input spec values given by the user.
    """
    workspace = Workspace()
    folder = workspace.find_dataset(data)
    spec, warning = choose_spec(
        _stored_spec(path),
        workspace.read_settings().input,
        spec_options,
        channels=count_channels({tensor.name: tensor.shape for tensor in session.inputs}),
    )
    in_bytes = read_byte_inputs(_read_metadata(path))
    inputs = {
        tensor.name: TensorShape(tensor.shape, tensor.dtype.name, tensor.name in in_bytes)
        for tensor in session.inputs
    }
    samples = open_samples(folder, inputs, spec, limit=limit)
    if warning and folder.suffix.lower() != ".npz":
        _log.warning(warning)
    return samples


def run_network(
    session: Session,
    samples: Samples,
    out: Path | None,
    watch: HangWatch,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Runs a session on every sample and summarizes its outputs.

    Args:
        session: the network.
        samples: its inputs.
        out: an `.npz` to write: one array per output, samples along the first axis.
        watch: ends the process where the runtime hangs.
        progress: told (what, done, total).

    Returns:
        shape, dtype, min, mean and max per output, for `--json`.
    """
    if out is not None and out.suffix != ".npz":
        raise InputError(f"--out is {out}", "a file name that ends in .npz")
    run = watch.limit(session, "the network")
    results: list[Arrays] = []
    for index in range(len(samples)):
        results.append(run(samples[index]))
        if progress is not None:
            progress("run", index + 1, len(samples))
    stacked = {name: np.concatenate([item[name] for item in results]) for name in results[0]}
    if out is not None:
        with atomic_path(out) as temporary, temporary.open("wb") as stream:
            np.savez(stream, **cast("dict[str, Any]", stacked))
    return {
        "samples": len(samples),
        "session": session.describe(),
        "outputs": {name: _summarize(values) for name, values in stacked.items()},
    }


def bench_networks(
    paths: Sequence[Path],
    runtime: str | None,
    settings: SessionSettings,
    *,
    runs: int,
    warmup: int,
    watch: HangWatch,
    progress: Progress | None = None,
) -> list[Timing]:
    """Times networks back to back on random input, in turns.

    Each network runs a fifth of its runs, then the next one does, five times over: what the machine
    does meanwhile meets all of them, so that their ratio holds where their figures do not.

    Args:
        paths: models or plans.
        runtime: a name of `BACKENDS`; None for each file's default.
        settings: threads, CUDA graph, device, input shapes.
        runs: timed runs of each network.
        warmup: runs before each turn that are not timed.
        watch: ends the process where a runtime hangs.
        progress: told (what, done, total) between the turns, never while timing.
    """
    if runs < ROUNDS:
        raise InputError(f"--runs is {runs}", f"at least {ROUNDS}")
    sessions = [watch.open(path, runtime, settings) for path in paths]
    try:
        feeds = [random_feeds(session) for session in sessions]
        shares = [runs // ROUNDS + (turn < runs % ROUNDS) for turn in range(ROUNDS)]
        latencies: list[list[NDArray[np.int64]]] = [[] for _ in sessions]
        for turn, share in enumerate(shares):
            for index, session in enumerate(sessions):
                what = f"{session.runtime} has not returned from running {paths[index]}"
                with watch.during_many(what, is_cold=turn == 0) as pulse:
                    timing = MeasureSettings(frames=share, warmup_frames=warmup, pulse=pulse)
                    run = measure_closed([network_stage(session)], feeds[index], timing)
                latencies[index].append(run.latency_ns)
            if progress is not None:
                progress("time the networks in turns", turn + 1, ROUNDS)
        return [
            Timing(path, session.describe(), np.concatenate(parts))
            for path, session, parts in zip(paths, sessions, latencies, strict=True)
        ]
    finally:
        for session in sessions:
            session.close()


def compare_sessions(
    reference: Session,
    candidate: Session,
    samples: Samples,
    watch: HangWatch,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Compares two opened networks output by output; see `compress.compare.compare_outputs`.

    Raises:
        InputError: their inputs or outputs do not fit together.
    """
    from compress.compare import compare_outputs

    if reference.inputs != candidate.inputs:
        wanted, got = (
            ", ".join(str(tensor) for tensor in session.inputs)
            for session in (reference, candidate)
        )
        raise InputError(f"the candidate has the inputs {got}", f"{wanted} as the reference")
    runs = watch.limit(reference, "the reference"), watch.limit(candidate, "the candidate")
    found = compare_outputs(*runs, samples, progress)
    sessions = {"reference": reference.describe(), "candidate": candidate.describe()}
    return {**found, "samples": len(samples), "sessions": sessions}


def _read_metadata(path: Path) -> dict[str, str]:
    if path.suffix.lower() == ".plan":
        return dict(read_manifest(path).metadata)
    import onnx

    return read_metadata(onnx.load(path, load_external_data=False))


def _stored_spec(path: Path) -> InputSpec | None:
    text = _read_metadata(path).get(INPUT_SPEC_KEY)
    return InputSpec.from_json(text) if text else None


def _summarize(values: NDArray[Any]) -> dict[str, Any]:
    finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values.ravel()
    summary: dict[str, Any] = {
        "shape": [1, *values.shape[1:]],
        "dtype": values.dtype.name,
        "not_finite": int(values.size - finite.size),
    }
    for name, pick in (("min", np.min), ("mean", np.mean), ("max", np.max)):
        summary[name] = float(pick(finite)) if finite.size else None
    return summary
