"""Figures: SVG for the page, and pictures for READMEs and notebooks.

This module imports nothing: matplotlib takes seconds to import.
"""
