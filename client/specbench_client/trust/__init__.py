"""Checks for the ways in which a speculative-decoding benchmark can mislead. All of them are pure functions.

There is one module per topic under `checks/`; a check is a function with its texts above it. `registry.py` lists them,
and `check.py` contains the data that they get. A check reports nothing where the data it needs is missing: an engine
that does not expose a number is not penalised for it. Each threshold carries its justification, and
docs/reference/metrics.md is generated from the same text.
"""
