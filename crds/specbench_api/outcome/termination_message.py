"""The termination message of a client's pod, which reports why the client ended.

The operator reads the message from the pod's status. Logs are for people and are never parsed.
"""

from __future__ import annotations

from specbench_api.api_model import ApiModel

TERMINATION_MESSAGE_MAX = 4000
"""Maximum bytes of the message; the kubelet truncates it at 4096."""
_LONGEST_ESCAPE = 6
"""Bytes of JSON's longest escape of one character, such as \\u0000; used so that truncation never cuts too much."""


class Termination(ApiModel):
    """The document that a client writes to /dev/termination-log."""

    code: int
    """Exit code."""
    reason: str
    """Why it ended, as one CamelCase word; an EngineReason if the engine was at fault."""
    message: str
    """What happened, and what to do next."""

    def to_message(self) -> str:
        """Return one line of JSON within the size limit; only the end of `message` is truncated."""
        message = self.message[:TERMINATION_MESSAGE_MAX]
        while True:
            line = self.model_copy(update={"message": message}).model_dump_json(by_alias=True)
            excess = len(line.encode()) - TERMINATION_MESSAGE_MAX
            if excess <= 0 or not message:
                return line
            message = message[: -max(excess // _LONGEST_ESCAPE, 1)]
