"""Figures with intervals, computed from the tidy rows of a point or cell, or from pairs with the baseline. Pure."""
