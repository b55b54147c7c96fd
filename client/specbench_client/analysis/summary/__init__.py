"""Summarises a run from its records. Pure functions.

point       figures of one point, and the findings of its checks
cell        all repeats of one arm at one load, compared with the baseline
claims      which differences may be claimed, after correction for the number of comparisons
headline    the answer as advice in a few sentences
run         the whole summary, with crossovers and the environments of the arms
"""
