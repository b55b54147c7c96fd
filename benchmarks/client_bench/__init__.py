"""Benchmarks specbench's client and other clients against a server that records its true send times."""
