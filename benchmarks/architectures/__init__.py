"""Networks as other packages build them, through quantization, OpenVINO and pruning."""
