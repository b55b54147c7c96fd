"""Runs a measurement: `group` measures the points of one engine group, `conclude` writes the run's summary and report.

This module imports nothing: `conclude` needs plots and statistics, which take seconds to import.
"""
