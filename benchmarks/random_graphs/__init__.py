"""Random small graphs, to find what a runtime computes otherwise than a quantized file says."""
