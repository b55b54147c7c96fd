"""Plots as SVG for the page and as PNG for READMEs; `sections` selects the data of each plot from a run.

A plot of the page gets the run's `RunSummary` and nothing else: no records, no store. The page can therefore be made
again from `summary.json` alone. A plot of a value that the summary lacks starts there: add the field in
`specbench_api.outcome.summary` and compute it in `analysis.summary`.
"""
