"""Checks whether the numbers of a published table contradict one another, by arithmetic only. Pure."""
