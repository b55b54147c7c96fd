"""Resampling and confidence intervals, independent of what is measured. Pure functions.

- `bootstrap`: resampling of prompts within repeats, and percentile intervals.
- `intervals`: one interval for the variation of prompts and of whole runs; the bootstrap-t interval.
- `log_ratio`: intervals of ratios of sums, on the log scale.
- `percentiles`: intervals of percentiles.
- `p_values`: p-values that match intervals, and the correction for multiple comparisons.

`import scipy` alone loads its packages at their first use, which takes a second that most programs need not spend.
"""
