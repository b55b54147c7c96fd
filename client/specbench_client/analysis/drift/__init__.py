"""Detects whether acceptance changed since a reference, and whether traffic or drafter changed it. Pure."""
