"""The same statistics over a pipeline that is running."""
