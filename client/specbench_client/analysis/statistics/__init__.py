"""Resampling and intervals, knowing nothing of requests. Pure.

bootstrap, draws, studentised    prompts drawn anew within repeats
levels                           the noise of prompts and the noise of whole runs, as one interval
log_ratio, quantile              the two shapes of a figure: a ratio of sums, a percentile
holm                             many comparisons at once
"""
