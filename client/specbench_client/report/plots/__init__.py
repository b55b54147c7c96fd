"""Plots as SVG for the page and as PNG for READMEs; `sections` selects the data of each plot from a run."""

from specbench_client.report.plots.page import Plot, png, svgs
from specbench_client.report.plots.styles import PAGE

__all__ = ["PAGE", "Plot", "png", "svgs"]
