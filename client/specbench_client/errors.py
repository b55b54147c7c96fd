"""The exceptions of the client; each class has the exit code of the program.

    SpecbenchError
    ├── InvalidSpec                    bad input, exit 2 (api)
    └── ClientError
        ├── BadInput                   exit 2: unreadable prompts, a results folder of another plan
        ├── EvidenceInsufficient           exit 3: stored results do not allow what was asked for
        ├── EngineFailed               exit 4: it did not start, failed a completion, died or was lost
        ├── NotDurable                 exit 5: S3 or the disk failed
        └── Interrupted                exit 130: SIGINT, SIGTERM

A failed *request* is a record with an error class, never one of these. `cli` and `job` convert them to exit codes and
termination messages.
"""

from __future__ import annotations

from typing import ClassVar

from specbench_api.errors import SpecbenchError
from specbench_api.outcome.exit_codes import Exit


class ClientError(SpecbenchError):
    """An error that ends the client. `reason` is one CamelCase word; the message contains the remedy."""

    exit: ClassVar[Exit] = Exit.BUG

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason or type(self).__name__


class BadInput(ClientError):
    """The input cannot be measured; nothing was started."""

    exit = Exit.BAD_INPUT


class EvidenceInsufficient(ClientError):
    """The stored results do not allow what was asked for, although the request itself is valid."""

    exit = Exit.UNTRUSTWORTHY


class EngineFailed(ClientError):
    """The engine failed; `reason` is an EngineReason."""

    exit = Exit.ENGINE_FAILED


class NotDurable(ClientError):
    """Results could not be stored."""

    exit = Exit.RESULTS_NOT_STORED


class Interrupted(ClientError):
    """The client was stopped by a signal; finished points are kept, and the message of a run states how many."""

    exit = Exit.INTERRUPTED

    def __init__(self, message: str = "interrupted") -> None:
        super().__init__(message)
