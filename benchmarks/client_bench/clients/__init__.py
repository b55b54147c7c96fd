"""The compared clients: specbench's own and others from PyPI, each behind an adapter."""
