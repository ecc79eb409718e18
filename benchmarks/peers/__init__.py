"""framefit beside the tools that people use today, on the same networks and pictures.

Each tool runs in a process of its own, the peers in a virtual environment of their own, since they
pin versions of what framefit needs too. `make bench-quantize` runs all of it.
"""
