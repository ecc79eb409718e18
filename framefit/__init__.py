"""The shell around the packages: command line, demo and workspace."""
