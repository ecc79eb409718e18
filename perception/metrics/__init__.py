"""How good each head's output is."""
