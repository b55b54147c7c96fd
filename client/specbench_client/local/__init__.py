"""A plan on this machine: engines as processes, the same points, the same layout of results as on a cluster."""
