"""Fixtures of the client's tests, defined in support/specbench_testing."""

from specbench_testing.s3 import s3_access, s3_server, s3_store

__all__ = ["s3_access", "s3_server", "s3_store"]
