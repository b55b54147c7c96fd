"""Fixtures of the tests of examples."""

from specbench_testing.s3 import s3_access

__all__ = ["s3_access"]
