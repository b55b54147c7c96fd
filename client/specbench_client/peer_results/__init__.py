"""Reads result files of other benchmarks: figures by our definitions or refused with a reason, and requests. Pure."""
