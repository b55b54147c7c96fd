"""The errors of the operator, classified by how the operator handles them.

    SpecbenchError
    ├── InvalidSpec          Validated=False, nothing is created (defined in specbench_api)
    └── OperatorError
        ├── Retry            may succeed later without a change: reported in status, retried with backoff
        │   └── Changed      the object changed since it was read: read it again at once
        └── Stop             needs a change by a person: Stalled=True, still reconciled with every resync

Errors of the API server are mapped to these in `cluster.kubernetes_api`, and errors of S3 to StoreFailure in
`cluster.s3`. Any other exception is a bug: it is logged with its traceback, counted, and retried with backoff.
"""

from __future__ import annotations

from typing import ClassVar

from specbench_api.errors import SpecbenchError


class OperatorError(SpecbenchError):
    """Base of the operator's errors. `reason` is a CamelCase word for a condition; the message is for people.

    `kind`: how it is handled, for logs and metrics; subclasses for a single cause keep their parent's.
    """

    kind: ClassVar[str] = "OperatorError"

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Retry(OperatorError):
    """A step failed, and may succeed later although nobody changes the run."""

    kind = "Retry"


class Changed(Retry):
    """The object was written or replaced by somebody else between reading and writing it."""


class Stop(OperatorError):
    """A step failed, and will fail again until somebody changes the run or the operator's configuration."""

    kind = "Stop"
