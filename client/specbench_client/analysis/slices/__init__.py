"""The requests and steps of a cell by where they stand, each class with its sample size and its interval. Pure."""
