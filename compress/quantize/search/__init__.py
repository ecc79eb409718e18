"""Which layers stay in float: what each costs in quality and in time, measured."""
