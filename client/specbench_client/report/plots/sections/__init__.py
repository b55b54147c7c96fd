"""The plots of a run: each module selects figures from a summary; `plots.page` lists all plots.

A plot gets only the RunSummary, never records. A plot of new data therefore begins with the figure: in
`analysis.summary.cells` (one cell) or `analysis.breakdown` (classes of steps or requests), and in the document,
`specbench_api.outcome.summary` or `outcome.breakdown`.
"""
