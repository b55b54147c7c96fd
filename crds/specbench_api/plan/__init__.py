"""The plan of a run: engine groups, and the points with their hashes that each of them measures. Pure."""
