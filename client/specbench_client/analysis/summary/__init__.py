"""Summarises a run from its records. Pure functions.

point       figures of one point, and the findings of its checks
cells       all repeats of one arm at one load, compared with the baseline, and which differences may be claimed
headline    the answer as advice in a few sentences
run         the whole summary, with crossovers and the environments of the arms
"""
