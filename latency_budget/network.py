"""The stage `network`: a session of `engines`, timed with the host's copies."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from artifacts.input_spec import InputSpec
from artifacts.samples import TensorShape, open_samples
from engines.random_feeds import random_feeds
from engines.runtimes import open_session
from engines.session import Feeds, Session, SessionSettings
from latency_budget.report import NETWORK_STAGE
from latency_budget.stage import Stage
from latency_budget.workload import Workload

DATA_FEEDS = 32
INTEGER_LAYERS = ("i8", "u8", "i4", "u4")


def open_network_workload(
    model: str,
    runtime: str | None = None,
    threads: int | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    data: str | None = None,
) -> Workload:
    """Opens a model or plan as the only stage of a frame; the function of a `Recipe`.

    Args:
        model: the file.
        runtime: a name of `BACKENDS`; the file's default if not given.
        threads: CPU threads of one inference.
        input_shapes: fixes dynamic inputs, by name.
        data: pictures or an `.npz` as its input; random if not given.

    Raises:
        InputError: the file, the runtime or the data is wrong.
    """
    shapes = {name: tuple(dims) for name, dims in (input_shapes or {}).items()}
    session = open_session(
        Path(model), runtime, SessionSettings(threads=threads, input_shapes=shapes)
    )
    return Workload(
        stages=[network_stage(session)],
        frames=read_feeds(session, Path(data)) if data else random_feeds(session),
        runtime=session.runtime,
        session=describe_session(session, Path(model)),
        is_whole_frame=False,
        close=session.close,
    )


def describe_session(session: Session, model: Path) -> dict[str, Any]:
    """Returns what the session says of itself, and whether Q/DQ pairs really became integers.

    A runtime that cannot place a pair runs its layer in float and says nothing.
    """
    described = session.describe()
    layers = described.get("layers")
    if isinstance(layers, Mapping) and model.suffix.lower() == ".onnx" and _has_qdq(model):
        integers = sum(count for name, count in layers.items() if name.lower() in INTEGER_LAYERS)
        described["integer_layers"] = {"asked": "some", "got": "some" if integers else "none"}
    return described


def _has_qdq(model: Path) -> bool:
    import onnx

    graph = onnx.load(model, load_external_data=False).graph
    return any(node.op_type == "QuantizeLinear" for node in graph.node)


def network_stage(session: Session) -> Stage:
    """Returns the stage that runs `session` on a frame's feeds and passes its outputs on."""
    return Stage(NETWORK_STAGE, session.run_borrowed)


def read_feeds(session: Session, path: Path, *, limit: int = DATA_FEEDS) -> list[Feeds]:
    """Reads the network's inputs from pictures or an `.npz`, before anything is timed.

    Pixels become tensors as in the default input spec, and bytes are taken as they are: the values
    do not change the time of a dense network, and no quality is measured here.

    Raises:
        InputError: the samples cannot be read or do not fit the network.
    """
    shapes = {
        tensor.name: TensorShape(tensor.shape, tensor.dtype.name, takes_bytes=True)
        for tensor in session.inputs
    }
    return list(open_samples(path, shapes, InputSpec(), limit=limit)[:])
