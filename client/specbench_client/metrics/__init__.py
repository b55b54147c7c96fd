"""Figures computed from records: one small unit each, with formula, unit, and when it is missing. Pure functions."""
