"""Plots as SVG for the page and as PNG for READMEs: data in, axes out; `sections` holds what of a run goes where."""

from specbench_client.report.plots.ink import PAGE
from specbench_client.report.plots.page import Plot, png, svgs

__all__ = ["PAGE", "Plot", "png", "svgs"]
