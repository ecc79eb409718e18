"""Structured pruning: whole channels leave a network, and what is left computes the same."""
