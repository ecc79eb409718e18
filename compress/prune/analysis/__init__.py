"""Which channels of a network have to leave together."""
