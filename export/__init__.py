"""From a module to ONNX, and from ONNX to TensorRT plans."""
