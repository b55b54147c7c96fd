"""The truth file: one JSON line a request, of what the engine really did, against which a client is calibrated.

``step_accepted``, ``accepted_tokens`` and ``output_tokens`` are what was *delivered*: they hold ``output_tokens = 1 +
sum(step_accepted + 1)`` exactly, over all decode steps, drafts or none. What vLLM and SGLang *report* (they count
before the last step is cut, and leave out steps without drafts) stands beside it under ``reported``. A request that was
cut off has ``finish_reason`` ``abort`` and counts what was handed to the socket; one without a single token has no
line. Times are this machine's monotonic clock in ns, taken just before the send, so no client can have received
earlier.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TextIO

from specbench_client.simulator.config import MODEL_NAME
from specbench_client.simulator.engine import Piece, Stream
from specbench_client.simulator.errors import ConfigError


def truth_of(stream: Stream, sent: list[Piece], sent_ns: list[int], *, complete: bool) -> dict[str, Any]:
    """Return the line of one request; ``sent`` are the steps whose tokens left, ``sent_ns`` one stamp a chunk."""
    steps = [piece.outcome for piece in sent if not piece.outcome.prefill]
    drafting = [step for step in steps if step.drafted]
    return {
        "request_id": stream.ask.request_id,
        "model": MODEL_NAME,
        "category": stream.category,
        "output_tokens": sum(len(piece.words) for piece in sent),
        "steps": len(steps),
        "step_accepted": [step.delivered_accepted for step in steps],
        "step_drafted": [step.drafted for step in steps],
        "draft_steps": len(drafting),
        "drafted_tokens": sum(step.drafted for step in steps),
        "accepted_tokens": sum(step.delivered_accepted for step in steps),
        "reported": {
            "draft_steps": len(drafting),
            "step_accepted": [step.accepted for step in drafting],
            "accepted_tokens": sum(step.accepted for step in drafting),
        },
        "finish_reason": stream.answer.finish_reason if complete else "abort",
        "received_ns": stream.ask.received_ns,
        "scheduled_ns": stream.timing.scheduled_ns,
        "sent_ns": sent_ns,
    }


class TruthFile:
    """Appends lines and flushes each: a killed engine loses none, a restarted one keeps the earlier ones."""

    def __init__(self, path: Path) -> None:
        try:
            self._file: TextIO = path.open("a", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"truth file {path}: {error}") from error

    def write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()
