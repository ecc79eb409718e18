"""What passes between stages: safe loading, atomic writing, manifests and digests."""
