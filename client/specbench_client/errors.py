"""The error tree of the client; each error knows how the program ends because of it.

    SpecbenchError
    ├── InvalidSpec                    bad input, exit 2 (api)
    └── ClientError
        ├── BadInput                   exit 2: prompts that cannot be read, a results root that belongs to another plan
        ├── EngineFailed               exit 4: it did not start, refused a completion, died or was lost
        ├── NotDurable                 exit 5: S3 or the disk refused
        └── Interrupted                exit 130: SIGINT, SIGTERM

A failed *request* is a record with an error class, never one of these. Exit codes and termination messages are
made of them in one place each (`cli`, `job`).
"""

from __future__ import annotations

from typing import ClassVar

from specbench_api.errors import SpecbenchError
from specbench_api.outcome.ending import Exit


class ClientError(SpecbenchError):
    """Something ended the client. `reason` is one CamelCase word, the message tells a person what to do."""

    exit: ClassVar[Exit] = Exit.BUG

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason or type(self).__name__


class BadInput(ClientError):
    """What was given cannot be measured; nothing was started."""

    exit = Exit.BAD_INPUT


class EngineFailed(ClientError):
    """The engine is at fault; `reason` is an EngineReason."""

    exit = Exit.ENGINE_FAILED


class NotDurable(ClientError):
    """Results could not be stored."""

    exit = Exit.NOT_DURABLE


class Interrupted(ClientError):
    """Somebody asked us to stop; what was finished is kept."""

    exit = Exit.INTERRUPTED
