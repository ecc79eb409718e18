"""Measures every figure that the documentation states; `make bench` runs all."""
