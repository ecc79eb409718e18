"""INT4 weights stored in INT8, for runtimes that have no kernels for them.

TensorRT-RTX 1.7 cannot build a convolution of INT8 activations and INT4 weights. With the same
integers in 8 bits it can; the file grows, the results stay.
"""

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper


def widen_int4(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns the model with its per-channel INT4 weights in INT8, itself where it has none.

    Weights with a scale per block stay: blocks of INT8 have no kernels either.
    """
    if all(tensor.data_type != TensorProto.INT4 for tensor in model.graph.initializer):
        return model
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    blocked = {
        name
        for node in wide.graph.node
        if any(item.name == "block_size" and item.i for item in node.attribute)
        for name in node.input
    }
    for tensor in wide.graph.initializer:
        if tensor.data_type == TensorProto.INT4 and tensor.name not in blocked:
            integers = numpy_helper.to_array(tensor).astype(np.int8)
            tensor.CopyFrom(numpy_helper.from_array(integers, tensor.name))
    return wide
