"""Plots as SVG for the page and as PNG for READMEs; `sections` selects the data of each plot from a run."""
