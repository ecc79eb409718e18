"""onnxruntime's profile, beside the graph that it really executes."""

import json
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from engines.backends.ort import OrtSession
from engines.profiles.layer_time import (
    LayerProfile,
    LayerTime,
    Now,
    median_of,
    time_runs,
    zero_feeds,
)
from engines.session import Feeds, SessionSettings

_KERNEL = "_kernel_time"
_BLOCKED = "_nchwc"


class ProfiledOrt(OrtSession):
    """A session that writes a profile and its optimized graph into a folder."""

    def __init__(self, path: Path, settings: SessionSettings, folder: Path) -> None:
        self._folder = folder
        super().__init__(path, settings)

    def _prepare(self, options: Any) -> None:
        options.enable_profiling = True
        options.profile_file_prefix = str(self._folder / "profile")
        options.optimized_model_filepath = str(self._folder / "optimized.onnx")

    def end(self) -> Path:
        """Ends the profile and returns its file."""
        return Path(self._session.end_profiling())


def profile(
    path: Path, settings: SessionSettings, feeds: Feeds | None, runs: int, now_ns: Now
) -> LayerProfile:
    """Profiles a network; see `engines.layer_profile.profile_layers`."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        with ProfiledOrt(_with_names(path, folder), settings, folder) as session:
            arrays = feeds or zero_feeds(session.inputs)
            session.run(arrays)
            total_s = time_runs(session, arrays, runs, now_ns, lambda: None)
            events = json.loads(session.end().read_text(encoding="utf-8"))
        layers = _read_layers(folder / "optimized.onnx", _read_times(events, runs))
    return LayerProfile(runtime="onnxruntime", layers=layers, total_s=total_s, runs=runs)


def _with_names(path: Path, folder: Path) -> Path:
    """Returns the model, or a copy whose nodes all have names: only those can be found again."""
    import onnx

    from artifacts.onnx_file import load_onnx, save_onnx

    if all(node.name for node in onnx.load(path, load_external_data=False).graph.node):
        return path
    return save_onnx(load_onnx(path), folder / "named.onnx", metadata={})


def _read_times(events: list[dict[str, Any]], runs: int) -> dict[str, list[float]]:
    """Returns the last `runs` times per node; the first run is the uncounted one."""
    times: dict[str, list[float]] = defaultdict(list)
    for event in events:
        name = str(event.get("name", ""))
        if event.get("cat") == "Node" and name.endswith(_KERNEL):
            times[name.removesuffix(_KERNEL)].append(event["dur"] / 1e6)
    return {name: values[-runs:] for name, values in times.items()}


def _read_layers(path: Path, times: dict[str, list[float]]) -> tuple[LayerTime, ...]:
    """Joins the times with the graph that onnxruntime saved after its optimizations."""
    import onnx

    graph = onnx.load(path).graph
    producer = {name: node.name for node in graph.node for name in node.output}
    outputs = {value.name for value in graph.output}
    return tuple(
        LayerTime(
            name=node.name,
            kind=node.op_type,
            median_s=median_of(times[node.name]) if node.name in times else 0.0,
            nodes=(node.name.removesuffix(_BLOCKED),),
            inputs=tuple(dict.fromkeys(producer[name] for name in node.input if name in producer)),
            outputs=tuple(name for name in node.output if name in outputs),
        )
        for node in graph.node
    )
