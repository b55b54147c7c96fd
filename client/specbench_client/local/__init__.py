"""Runs a plan on this machine: engines as processes, with the same points and layout of results as on a cluster."""
