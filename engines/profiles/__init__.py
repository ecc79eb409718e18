"""Time per layer, one file per runtime."""
