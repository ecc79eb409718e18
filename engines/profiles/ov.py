"""OpenVINO's own counters: `PERF_COUNT` and the graph that it really executes."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from engines.backends.ov import _SINK_SUFFIX, OpenVinoSession
from engines.profiles.layer_time import (
    LayerProfile,
    LayerTime,
    Now,
    median_of,
    time_runs,
    zero_feeds,
)
from engines.session import Feeds, SessionSettings

_NOT_LAYERS = ("Parameter", "Result", "Const")
_BIASLESS = "/WithoutBiases"


class ProfiledOpenVino(OpenVinoSession):
    """A session whose layers are timed."""

    extra_config: ClassVar[dict[str, Any]] = {"PERF_COUNT": True}

    def layer_times(self) -> dict[str, float]:
        """Returns the seconds of each layer in the last run."""
        return {
            str(info.node_name): info.real_time.total_seconds()
            for info in self._request.get_profiling_info()
            if str(info.status).endswith("EXECUTED")
        }

    def executed_layers(self) -> list[LayerTime]:
        """Returns the executed graph, without times."""
        operations = self._compiled.get_runtime_model().get_ordered_ops()
        outputs: dict[str, list[str]] = defaultdict(list)
        for node in operations:
            if node.get_type_name() == "Result":
                source = node.inputs()[0].get_source_output().get_node()
                name = str(node.get_friendly_name()).removesuffix(_SINK_SUFFIX)
                outputs[str(source.get_friendly_name())].append(name)
        return [
            _layer(node, tuple(outputs[str(node.get_friendly_name())]))
            for node in operations
            if node.get_type_name() not in _NOT_LAYERS
        ]


def profile(
    path: Path, settings: SessionSettings, feeds: Feeds | None, runs: int, now_ns: Now
) -> LayerProfile:
    """Profiles a network; see `engines.layer_profile.profile_layers`."""
    times: dict[str, list[float]] = defaultdict(list)
    with ProfiledOpenVino(path, settings) as session:

        def note() -> None:
            for name, seconds in session.layer_times().items():
                times[name].append(seconds)

        arrays = feeds or zero_feeds(session.inputs)
        session.run(arrays)
        total_s = time_runs(session, arrays, runs, now_ns, note)
        layers = session.executed_layers()
    return LayerProfile(
        runtime="openvino",
        layers=tuple(
            replace(layer, median_s=median_of(times[layer.name]) if times[layer.name] else 0.0)
            for layer in layers
        ),
        total_s=total_s,
        runs=runs,
    )


def _layer(node: Any, outputs: tuple[str, ...]) -> LayerTime:
    info = {key: str(value.astype(str)) for key, value in node.get_rt_info().items()}
    names = info.get("originalLayersNames", "").split(",")
    return LayerTime(
        name=str(node.get_friendly_name()),
        kind=f"{info.get('layerType', '')} {info.get('primitiveType', '')}".strip(),
        median_s=0.0,
        nodes=tuple(dict.fromkeys(name.removesuffix(_BIASLESS) for name in names if name)),
        inputs=tuple(
            str(port.get_source_output().get_node().get_friendly_name()) for port in node.inputs()
        ),
        outputs=outputs,
    )
