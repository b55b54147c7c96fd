"""Stored runs: `Run` reads one, `conclude` writes its summary and report; the other modules are inputs of commands.

This module imports nothing: `conclude` needs plots and statistics, which take seconds to import.
"""
