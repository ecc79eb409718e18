"""Rules that turn calibration data into a tensor's range."""
