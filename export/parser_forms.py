"""The forms of operators that TensorRT's parser takes, written before a plan is built or linted."""

import onnx

from artifacts.int4_weights import widen_int4
from artifacts.openvino_guard import remove_guards
from export.blocked_weights import write_blocked_weights
from export.early_casts import cast_before_moves
from export.float_constants import write_float_constants
from export.masked_writes import select_masked_writes
from export.scattered_sums import gather_scattered_sums


def write_for_parser(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns a network that computes the same with operators that TensorRT's parser takes.

    Args:
        model: in topological order, with unique names; returned itself where nothing is to be done.
    """
    bare = write_float_constants(widen_int4(write_blocked_weights(remove_guards(model))))
    return gather_scattered_sums(cast_before_moves(select_masked_writes(bare)))
