"""The literature's rules of thumb as data, each beside what was measured. They decide nothing.

A rule predicts where a ratio lies: an arm's speed-up over the baseline, or two arms' over each other. The measured
interval then agrees, contradicts, or lies across. A rule that no run can measure says so, and what to ask instead.
"""
