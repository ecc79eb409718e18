"""Changes to a float network that leave its results as they are and make it easier to quantize."""
