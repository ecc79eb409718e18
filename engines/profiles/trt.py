"""TensorRT's `IProfiler`, beside what its engine inspector tells of the layers."""

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from artifacts.errors import InputError
from engines.backends.trt import TrtSession
from engines.profiles.layer_time import (
    LayerProfile,
    LayerTime,
    Now,
    median_of,
    time_runs,
    zero_feeds,
)
from engines.session import Feeds, SessionSettings

_ONNX_LAYER = re.compile(r"\[ONNX Layer: ([^\]]+)\]")


class ProfiledTrt(TrtSession):
    """A session whose layers are timed; each run waits for every layer."""

    def start(self) -> dict[str, list[float]]:
        """Attaches a profiler and returns where it writes seconds per layer."""
        times: dict[str, list[float]] = defaultdict(list)

        class Collect(self._module.IProfiler):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()

            def report_layer_time(self, layer_name: str, ms: float) -> None:
                times[layer_name].append(ms / 1e3)

        self._profiler = Collect()
        self._context.profiler = self._profiler
        return times

    def describe_layers(self) -> list[Any]:
        """Returns the inspector's layers: names only, or objects with inputs and outputs."""
        inspector = self._engine.create_engine_inspector()
        form = self._module.LayerInformationFormat.JSON
        found = json.loads(inspector.get_engine_information(form))
        return list(found.get("Layers", []))


def profile(
    path: Path, settings: SessionSettings, feeds: Feeds | None, runs: int, now_ns: Now
) -> LayerProfile:
    """Profiles a plan; see `engines.layer_profile.profile_layers`.

    Raises:
        InputError: a CUDA graph was asked for, whose layers cannot be told apart.
    """
    if settings.cuda_graph:
        raise InputError(
            "a CUDA graph was asked for, whose layers TensorRT cannot time",
            fix="leave --cuda-graph out",
        )
    with ProfiledTrt(path, settings) as session:
        arrays = feeds or zero_feeds(session.inputs)
        session.run(arrays)
        times = session.start()
        total_s = time_runs(session, arrays, runs, now_ns, lambda: None)
        outputs = {tensor.name for tensor in session.outputs}
        layers = join_layers(session.describe_layers(), dict(times), outputs)
    return LayerProfile(runtime="tensorrt", layers=layers, total_s=total_s, runs=runs)


def join_layers(
    described: list[Any], times: Mapping[str, list[float]], outputs: set[str]
) -> tuple[LayerTime, ...]:
    """Joins the profiler's times with the inspector's layers.

    Args:
        described: `Layers` of the inspector's JSON: strings, or objects as TensorRT 10 (Inputs,
            Outputs) and 11 write them.
        times: seconds of each run per layer name.
        outputs: names of the graph's outputs.
    """
    known = {_name_of(layer): layer for layer in described}
    producer = {
        name: layer for layer, value in known.items() for name in _tensors(value, "Outputs")
    }
    return tuple(
        LayerTime(
            name=name,
            kind=_kind_of(known.get(name)),
            median_s=median_of(values),
            nodes=_nodes_of(name, known.get(name)),
            inputs=tuple(
                dict.fromkeys(
                    producer[tensor]
                    for tensor in _tensors(known.get(name), "Inputs")
                    if tensor in producer
                )
            ),
            outputs=tuple(
                tensor for tensor in _tensors(known.get(name), "Outputs") if tensor in outputs
            ),
        )
        for name, values in times.items()
    )


def _name_of(layer: Any) -> str:
    return str(layer.get("Name", "")) if isinstance(layer, dict) else str(layer)


def _kind_of(layer: Any) -> str:
    return str(layer.get("LayerType", "")) if isinstance(layer, dict) else ""


def _tensors(layer: Any, key: str) -> list[str]:
    if not isinstance(layer, dict):
        return []
    return [
        str(item.get("Name", "")) if isinstance(item, dict) else str(item)
        for item in layer.get(key, [])
    ]


def _nodes_of(name: str, layer: Any) -> tuple[str, ...]:
    """The ONNX nodes of a layer: its metadata tells them, else its name joins them with ` + `."""
    metadata = str(layer.get("Metadata", "")) if isinstance(layer, dict) else ""
    found = _ONNX_LAYER.findall(metadata)
    return tuple(found) if found else tuple(part.strip() for part in name.split(" + "))
