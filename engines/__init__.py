"""Running a compiled artifact: one session contract, one file per runtime."""
