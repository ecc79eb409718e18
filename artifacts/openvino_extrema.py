"""The reductions behind which OpenVINO miscomputes a quantizer."""

EXTREMA = frozenset({"GlobalMaxPool", "ReduceMax", "ReduceMin"})
"""Seen with OpenVINO 2026.4: it computes the quantizer in the reduction's kernel, and wrongly."""
