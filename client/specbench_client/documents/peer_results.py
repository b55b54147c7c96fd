"""A result file of another benchmark, with its figures normalised to our definitions or refused with the reason."""

from __future__ import annotations

from typing import Literal

from specbench_api.api_model import ApiModel
from specbench_api.spec.load import Level


class PeerFigure(ApiModel):
    """One figure of the file."""

    name: str
    """Name of our figure, see docs/reference/metrics.md; the file's own name if we have no such figure."""
    field: str
    """Where the file has it."""
    unit: str
    """Unit of the values."""
    printed: float
    """The value of the file, in `unit`."""
    value: float | None = None
    """The value by our definition; None if it is not comparable."""
    reason: str = ""
    """Why it is not comparable; for a comparable figure, what was converted. Empty: the definitions are the same."""


class PeerResult(ApiModel):
    """One measurement of the file: one load."""

    schema_version: Literal["specbench.io/peer-result/v1"] = "specbench.io/peer-result/v1"
    """Version of this document."""
    file: str
    """The file, with the number of the measurement if it has several."""
    tool: str
    """The benchmark that wrote it."""
    tool_version: str | None = None
    """Its version; None if the file does not state it."""
    model: str | None = None
    """The model; None if the file does not state it."""
    level: Level | None = None
    """The load; None if the file does not state it."""
    requests: int = 0
    """Requests that were answered."""
    requests_stored: int = 0
    """Requests of which the file has its own row; 0 in a summary."""
    figures: list[PeerFigure] = []
    """The figures of the file's summary."""
    limits: list[str] = []
    """What the file does not contain, and what follows from that."""


class PeerResults(ApiModel):
    """What `specbench import` read, and where the requests were stored."""

    schema_version: Literal["specbench.io/peer-results/v1"] = "specbench.io/peer-results/v1"
    """Version of this document."""
    results: list[PeerResult]
    """The measurements, in the order of the files."""
    stored: str | None = None
    """Root of the run with the requests of all files; None if no file has requests."""
