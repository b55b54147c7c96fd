"""Explains a speed-up by its factors and categories, and projects it onto another traffic mix. Pure."""
