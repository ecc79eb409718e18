"""A procedural renderer of road scenes with exact boxes, masks and depth."""
