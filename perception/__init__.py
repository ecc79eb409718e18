"""Networks, heads, data and metrics, and the frame's stages that are no network."""
