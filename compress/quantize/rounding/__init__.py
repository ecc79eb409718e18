"""Rules that round weights to integers."""
