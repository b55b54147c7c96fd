"""A point's manifest: written last, it makes the point a result. What it does not name is no result."""

from __future__ import annotations

from typing import Literal

from specbench_api.model import ApiModel
from specbench_api.outcome.coverage import Coverage


class StoredFile(ApiModel):
    """One object that belongs to the point."""

    key: str
    """Key below the run's root."""
    size: int
    """Bytes."""
    sha256: str
    """SHA-256 of its content, in hex."""
    rows: int | None = None
    """Rows, for records."""


class Observed(ApiModel):
    """What could only be seen, not declared. A resume that finds it changed is refused."""

    dataset_fingerprint: str
    """SHA-256 over the prompts as they were used, in order."""
    prompts: int
    """Prompts of the workload."""
    coverage: Coverage | None = None
    """Which of the rows that were asked for they are. None: written before this was kept."""
    trace_fingerprint: str | None = None
    """SHA-256 over the time stamps of the trace that is replayed; None where none is."""
    chat_template_sha256: str | None = None
    """SHA-256 of the chat template that the client applied; None where the engine applied its own."""
    tokenizer_sha256: str | None = None
    """SHA-256 of the tokenizer.json that made its text token ids; None as above."""
    engine_version: str | None = None
    """What the engine says of itself."""
    engine_model: str | None = None
    """The model's name as served."""
    image_digest: str | None = None
    """The engine's image, by its digest, as the node runs it; None where nobody saw one."""
    client_version: str
    """Version of the client."""
    launch: str
    """Which launch of the engine served it: group-attempt."""


class Manifest(ApiModel):
    """What makes a point a result."""

    schema_version: Literal["specbench.io/manifest/v1"] = "specbench.io/manifest/v1"
    """Version of this document."""
    hash: str
    """The point."""
    attempt: str
    """Which attempt of the client wrote it."""
    started_monotonic_ns: int
    """The point's start on the client's monotonic clock; records count from it."""
    started_wall: str
    """The same on the wall clock, RFC 3339."""
    load_started_ns: int | None = None
    """From when a schedule counts (in a closed loop: when the load began), from the point's start. Warm-up lies before
    it, and an open loop's first fillers."""
    ended_wall: str
    """When the last record was closed."""
    files: list[StoredFile]
    """Records, summary, and the schedule of an open loop."""
    observed: Observed
    """What was seen."""
