"""Runs a measurement: `group` measures the points of one engine group and stores their records."""
