"""Figures with their intervals: from tidy rows of a point or a cell, or from pairs with the baseline. Pure."""
