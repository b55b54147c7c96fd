"""Writes the truth file: one JSON line per request with what the engine really did, for calibrating a client.

``step_accepted``, ``accepted_tokens`` and ``output_tokens`` count *delivered* tokens: ``output_tokens = 1 +
sum(step_accepted + 1)`` holds exactly over all decode steps, with or without drafts. The counts that vLLM and SGLang
*report* (before the last step is cut, without the steps that had no drafts) are under ``reported``. An aborted request
has the ``finish_reason`` ``abort`` and counts the tokens handed to the socket; a request without any token has no line.
Times are this machine's monotonic clock in ns, taken just before sending, so no client can have received earlier.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TextIO

from specbench_client.simulator.config import MODEL_NAME
from specbench_client.simulator.engine import StepOutput, TokenStream
from specbench_client.simulator.errors import ConfigError


def truth_record(stream: TokenStream, sent: list[StepOutput], sent_ns: list[int], *, complete: bool) -> dict[str, Any]:
    """Return the line of a request. ``sent``: steps whose tokens were sent; ``sent_ns``: one timestamp per chunk."""
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
    """Appends lines and flushes each one, so that a killed engine loses none and a restarted one keeps earlier ones."""

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
