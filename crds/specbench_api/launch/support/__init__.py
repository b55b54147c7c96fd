"""What exists: engine × method, from which version, how, and from where we know it. Data, one file an engine.

The one place that drives admission, the docs and the tests.
"""
