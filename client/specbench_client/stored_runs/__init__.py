"""Stored runs: `conclude` writes summary and report from the records; the other modules read runs for the commands.

This module imports nothing: `conclude` needs plots and statistics, which take seconds to import.
"""
