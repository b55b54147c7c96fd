"""status.json: the results for a run's status. The client writes it, and the operator copies it into the status.

Anybody who may write to the bucket may have written it, so this model bounds everything that it contains.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from specbench_api.outcome.layout import StorageName
from specbench_api.spec.load import REPEATS_MAX, Level
from specbench_api.spec.status import ArmResult, Count, MeasuredResults

ARMS_BYTES = 60_000
"""Maximum size of all rows of results: about ninety rows."""
SENTENCE_BYTES = 4096
"""Maximum size of a sentence: that of a condition's message."""
ARM_AT_FAULT = "ArmAtFault"
"""Reason of a trustworthy run with findings of severity Fault."""
_ESCAPED = re.compile("[<>&]")
_ESCAPE_MORE = 5
"""Additional bytes of each of these characters, which the API server stores as \\u003c and so on."""


def stored_bytes(data: object) -> int:
    """Return an upper bound of the bytes that the API server stores: characters beyond ASCII count as escaped."""
    text = json.dumps(data, separators=(",", ":"))
    return len(text) + _ESCAPE_MORE * len(_ESCAPED.findall(text))


def clip(text: str, most: int) -> str:
    """Return the longest beginning of a text whose JSON string has at most this many bytes."""
    text = text[:most]
    while stored_bytes(text) > most + 2:  # without the two quotes
        text = text[: len(text) - max((stored_bytes(text) - most) // 12, 1)]
    return text


def _require_small(rows: list[ArmResult]) -> list[ArmResult]:
    if (size := stored_bytes([row.to_dict() for row in rows])) > ARMS_BYTES:
        raise ValueError(f"the rows have {size} bytes, and {ARMS_BYTES} are allowed")
    return rows


Round = Annotated[list[tuple[StorageName, StorageName, Level]], Field(max_length=1024)]
"""The arms, workloads and load levels of a round (`PlanCell`)."""
Sentence = Annotated[str, Field(max_length=SENTENCE_BYTES)]


class StatusDocument(MeasuredResults):
    """The results for a run's status, and what identifies them."""

    schema_version: Literal["specbench.io/status/v1"] = "specbench.io/status/v1"
    """Version of this document."""
    uid: StorageName | Literal[""]
    """UID of the run whose results these are; empty if its plan has none."""
    plan_sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    """Digest of the plan, see `plan.canonical.plan_digest`."""
    created: Annotated[str, Field(max_length=64)]
    """When the summary was written, RFC 3339."""
    points_measured: Count
    """Number of points that are included."""
    points_invalid: Count
    """Number of these points that a check invalidated."""
    arms: Annotated[list[ArmResult], Field(max_length=1024), AfterValidator(_require_small)]
    """As many rows as fit, see `armsOmitted`."""
    rounds: Annotated[list[Round], Field(max_length=REPEATS_MAX)] = []
    """The rounds beyond the planned repeats: those that were added, and one more if the run still needs one, for its
    search or because something outside of the servers spoiled another."""
    trust: Literal["Trustworthy", "Untrustworthy"]
    """Whether no check found a reason to doubt."""
    headline: Sentence
    """The answer as advice, for a person."""
    trust_reason: Annotated[str, Field(min_length=1, max_length=128, pattern="^[A-Za-z][A-Za-z0-9]*$")]
    """Reason of the condition Trustworthy: the check with the worst finding, if one makes the run untrustworthy."""
    trust_message: Sentence
    """Message of this condition."""
