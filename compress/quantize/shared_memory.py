"""One arena for the sessions of a walk through a network.

A session that has one of its own asks the system for memory, page by page (4 KiB), for what it
computes and gives it back in the end, which with large pictures takes longer than many a layer.
"""

import logging
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, helper

if TYPE_CHECKING:
    from onnxruntime import InferenceSession, SessionOptions

_GROWS_BY_DOUBLING = 0
_log = logging.getLogger(__name__)


def share_memory(options: "SessionOptions") -> None:
    """Lets a session take its memory, and that of its results, from the arena."""
    if _has_arena():
        options.add_session_config_entry("session.use_env_allocators", "1")


def give_back_memory() -> None:
    """Gives the parts of the arena back to the system that nothing lies in."""
    if _has_arena():
        import onnxruntime as ort

        options = ort.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        _open_smallest().run(None, {"x": np.zeros(1, np.float32)}, options)


@cache
def _has_arena() -> bool:
    """Makes the arena when it is first asked for; returns whether that went well."""
    import onnxruntime as ort

    info = ort.OrtMemoryInfo(
        "Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT
    )
    try:
        ort.create_and_register_allocator(info, ort.OrtArenaCfg(0, _GROWS_BY_DOUBLING, -1, -1))
    except Exception as error:
        _log.info("onnxruntime's sessions have memory of their own: %s", error)
        return False
    return True


@cache
def _open_smallest() -> "InferenceSession":
    """Returns a session that shares the arena: memory is given back at the end of a run."""
    import onnxruntime as ort

    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y"])], "smallest", ends[:1], ends[1:]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    share_memory(options)
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
