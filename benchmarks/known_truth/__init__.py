"""Simulated experiments with known results, to measure the coverage of specbench's confidence intervals."""
