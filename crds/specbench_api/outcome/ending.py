"""How programs end: exit codes, and the termination message in which a client says why.

The operator reads the message from the pod's status; logs are for people and are never parsed.
"""

from __future__ import annotations

from enum import IntEnum

from specbench_api.model import ApiModel


class Exit(IntEnum):
    """Exit codes of `specbench`. The client Job uses the same, but for UNTRUSTWORTHY, which is 0 there."""

    OK = 0
    """Finished and trustworthy."""
    BUG = 1
    """A bug of ours."""
    BAD_INPUT = 2
    """Bad input, nothing started."""
    UNTRUSTWORTHY = 3
    """Finished, but a point is Invalid or the run is not to be trusted."""
    ENGINE_FAILED = 4
    """An engine failed; the other arms' results are kept."""
    NOT_DURABLE = 5
    """Results are not durable."""
    INTERRUPTED = 130
    """Interrupted; what was finished is kept and found again."""


TERMINATION_MESSAGE_MAX = 4000
"""The kubelet cuts at 4096 bytes."""
_LONGEST_ESCAPE = 6
"""Bytes of JSON's longest spelling of one character, such as \\u0000: cutting by it never cuts too much."""


class Termination(ApiModel):
    """What a client leaves in /dev/termination-log."""

    code: int
    """Its exit code."""
    reason: str
    """One CamelCase word; an EngineReason where the engine was at fault."""
    message: str
    """What happened and what to do, for a person."""
    measured: int | None = None
    """Points that this group (of a report: the run) has in S3 now; None where that is not known."""

    def to_message(self) -> str:
        """As one JSON line that fits; the end of the message is cut before anything else."""
        message = self.message[:TERMINATION_MESSAGE_MAX]
        while True:
            told = self.model_copy(update={"message": message}).model_dump_json(by_alias=True)
            excess = len(told.encode()) - TERMINATION_MESSAGE_MAX
            if excess <= 0 or not message:
                return told
            message = message[: -max(excess // _LONGEST_ESCAPE, 1)]
