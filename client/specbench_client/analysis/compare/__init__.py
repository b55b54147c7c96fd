"""Comparison of two stored results, and a gate over it. Pure.

Unlike the arms of one run, the two results were not measured in turn, so they are not paired in time. Day-to-day
differences (heat, clocks, other processes, another node) affect the ratios of latencies but no interval here, because
one run on each side does not show them. Speed-ups are hardly affected, because each is relative to its own baseline.
"""
