"""framefit beside its peers on trained multi-head networks that it was never tuned to.

`make bench-unseen` trains the networks of `networks.py` briefly on rendered roads, lets
every tool of `benchmarks.peers` quantize them, judges all files on held-out pictures and by their
latency, builds the TensorRT-RTX plan of each, and writes its section of docs/benchmarks.md. They
are of other kinds than those of `benchmarks.fresh_networks`, whose parts, scenes and lessons they
use.
"""
