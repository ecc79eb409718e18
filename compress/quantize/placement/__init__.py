"""Where a runtime wants its Q/DQ pairs."""
