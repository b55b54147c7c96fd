"""The clients that are compared: ours, and its peers from PyPI, each behind one small adapter."""
