"""Quantization-aware training on the very graph that ships."""
