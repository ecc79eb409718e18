"""What OpenVINO's kernels read of a network, as it is compiled on this processor."""

import onnx
import openvino


def kernel_inputs(model: onnx.ModelProto) -> list[int]:
    """Returns the bytes of each value that OpenVINO's ConvTransposes read."""
    core = openvino.Core()
    network = core.read_model(model.SerializeToString())
    compiled = core.compile_model(network, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return [
        node.input(0).get_element_type().size
        for node in compiled.get_runtime_model().get_ordered_ops()
        if node.get_rt_info()["layerType"].value == "Deconvolution"
    ]
