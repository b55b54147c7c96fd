"""Recommends an arm and a load from a run's summary, and computes what it costs. Pure functions.

Everything is decided from the summary's figures and their intervals. Gains are paired at the same load where possible;
a comparison of two arms at different loads is not paired, and is marked as such.
"""
