"""A point's manifest, written last. It makes the point a result; files that it does not list are not part of it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from specbench_api.api_model import ApiModel
from specbench_api.outcome.layout import StorageKey, StorageName
from specbench_client.documents.prompt_coverage import PromptCoverage


class StoredFile(ApiModel):
    """One stored file of the point."""

    key: StorageKey
    """Key below the run's root."""
    size: Annotated[int, Field(ge=0)]
    """Size in bytes."""
    sha256: str
    """SHA-256 of the content, in hex."""
    rows: int | None = None
    """Number of rows, for records."""


class PointProvenance(ApiModel):
    """Conditions that were observed, not specified. A resume that finds them changed is rejected."""

    dataset_fingerprint: str
    """SHA-256 of the prompts as they were used, in order."""
    prompts: int
    """Number of prompts of the workload."""
    coverage: PromptCoverage | None = None
    """How many of the requested rows became prompts; null if the client did not read the prompts itself."""
    trace_fingerprint: str | None = None
    """SHA-256 of the timestamps of the replayed trace; null without a trace."""
    chat_template_sha256: str | None = None
    """SHA-256 of the chat template that the client applied; null if the engine applied its own."""
    tokenizer_sha256: str | None = None
    """SHA-256 of the tokenizer.json with which the client tokenized; null if the engine did."""
    engine_version: str | None = None
    """Version that the engine reported; null if it reported none."""
    engine_model: str | None = None
    """Name under which the engine serves the model; null if it reported none."""
    image_digest: str | None = None
    """Digest of the running engine image, as reported by the node; null if unknown."""
    client_version: str
    """Version of the client."""
    launch: StorageName | Literal[""]
    """The launch of the engine that served the point, as group-attempt."""


class Manifest(ApiModel):
    """The manifest of a point."""

    schema_version: Literal["specbench.io/manifest/v2"] = "specbench.io/manifest/v2"
    """Version of this document."""
    hash: StorageName
    """Hash of the point."""
    attempt: StorageName
    """The client's attempt that wrote it."""
    started_monotonic_ns: int
    """Start of the point on the client's monotonic clock, in ns; times in records are relative to it."""
    started_wall: str
    """Start of the point on the wall clock, RFC 3339."""
    load_started_ns: int | None = None
    """Start of the load (open loop: time 0 of the schedule), in ns from the point's start. Warm-up, and the first
    fillers of an open loop, are before it."""
    ended_wall: str
    """When the last record was completed, RFC 3339."""
    files: list[StoredFile]
    """The records of each client, the summary, and an open loop's schedule."""
    observed: PointProvenance
    """The observed conditions."""
