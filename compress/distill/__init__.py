"""Distillation: a student learns to answer as its teacher does, with or without labels."""
