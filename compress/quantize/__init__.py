"""Post-training quantization of ONNX graphs."""
