"""The checks, one module per topic."""
