"""Opens networks that lie in memory, as their files would be opened."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from artifacts.errors import InputError

if TYPE_CHECKING:
    from onnx import ModelProto

    from engines.session import Session, SessionSettings


def open_in_memory(
    model: "ModelProto", runtime: str, settings: "SessionSettings | None" = None
) -> "Session":
    """Opens a network on a runtime.

    Args:
        model: a self-contained network.
        runtime: a name of `engines.runtimes.BACKENDS`.
        settings: see `engines.runtimes.open_session`.

    Raises:
        InputError: the runtime does not open it; no temporary file is named, which is gone when
            the message is read.
        MissingExtraError: the runtime is not installed.
    """
    from engines.runtimes import SessionSettings, open_session
    from export.lint.target import TARGETS

    with TemporaryDirectory() as folder:
        path = Path(folder, "network.onnx")
        path.write_bytes(model.SerializeToString())
        try:
            return open_session(path, runtime, settings or SessionSettings())
        except InputError as error:
            what = error.what.replace(str(path), "the network")
            lint = f"framefit export lint MODEL --target {runtime} names the nodes"
            fix = lint if runtime in TARGETS else error.fix
            raise InputError(what, "operators that it supports", fix) from error


@cache
def set_up(runtime: str) -> None:
    """Opens the smallest network on a runtime, once in a process.

    OpenVINO's bindings set themselves up when they are first used, and two threads that do so at
    once wait for each other for ever: one for Python's lock, one for the setup.

    Raises:
        MissingExtraError: the runtime is not installed.
    """
    from onnx import TensorProto, helper

    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "smallest", values[:1], values[1:]
    )
    opset = helper.make_opsetid("", 13)
    open_in_memory(helper.make_model(graph, opset_imports=[opset], ir_version=8), runtime).close()
