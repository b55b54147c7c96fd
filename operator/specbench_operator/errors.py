"""The error tree of the operator: what to do next is the only thing that tells its errors apart.

    SpecbenchError
    ├── InvalidSpec          Validated=False, nothing is created (api)
    └── OperatorError
        ├── Retry            the world may heal by itself: said in status, tried again with backoff
        │   └── Changed      what was read is no longer so: read again at once
        └── Stop             it does not heal by itself: Stalled=True, still looked at with every relist

Errors of the API server and of S3 are mapped to these in one place each (`cluster.api`, `cluster.bucket`).
Anything else is a bug of ours: logged with its traceback, counted, retried with backoff.
"""

from __future__ import annotations

from specbench_api.errors import SpecbenchError


class OperatorError(SpecbenchError):
    """`reason` is one CamelCase word for a condition; the message tells a person what to do."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Retry(OperatorError):
    """It may work later without anybody changing the run."""


class Changed(Retry):
    """Somebody wrote between our reading and our writing."""


class Stop(OperatorError):
    """It will not work until somebody changes something."""
