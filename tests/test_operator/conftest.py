"""Fixtures of the operator's tests."""

from specbench_testing.s3 import s3_access, s3_server

__all__ = ["s3_access", "s3_server"]
