"""From clock to samples to statistics to verdict to report."""
