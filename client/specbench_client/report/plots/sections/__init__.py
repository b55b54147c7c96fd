"""The plots of a run: each module selects figures from a summary; `plots.page` lists all plots."""
