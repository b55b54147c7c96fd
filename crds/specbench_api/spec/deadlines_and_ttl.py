"""How long the parts of a run may take and its objects are kept, in seconds: limits of the fields, and defaults."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Deadline = Annotated[int, Field(ge=60, le=2_592_000)]
ENGINE_DEADLINE_S = 14_400
"""Of one engine launch."""
REPORT_DEADLINE_S = 14_400
"""Of the report Job and of a gate Job."""

StartupDeadline = Annotated[int, Field(ge=5, le=86_400)]
STARTUP_DEADLINE_S = 1_800
"""Until an engine is ready."""

TtlAfterFinished = Annotated[int, Field(ge=0, le=31_536_000)]
TTL_AFTER_FINISHED_S = 86_400
"""From the end of the run until its Jobs and Services are deleted."""
