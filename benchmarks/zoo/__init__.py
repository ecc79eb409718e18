"""The zoo: networks of every family through export, quantization, lint, TensorRT and OpenVINO."""
