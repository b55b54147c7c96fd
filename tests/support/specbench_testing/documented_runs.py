"""The complete runs in docs/how-to/placement.md, each with the values of the fence that allow it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

PAGE = Path(__file__).resolve().parents[3] / "docs/how-to/placement.md"


@dataclass(frozen=True)
class DocumentedRun:
    """A run of the page."""

    resource: dict[str, Any]
    fence: Mapping[str, Any]
    """Values of the chart that the page shows after the run."""

    @property
    def edits(self) -> dict[str, Any]:
        """The run's spec as edits of another run."""
        return {f"spec.{field}": value for field, value in self.resource["spec"].items()}


def documented_runs() -> dict[str, DocumentedRun]:
    """Name of the run → the run."""
    blocks = re.findall(r"```yaml\n(.+?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    documents = [yaml.safe_load(block) for block in blocks]
    return {
        run["metadata"]["name"]: DocumentedRun(run, after["fence"])
        for run, after in pairwise(documents)
        if run.get("kind") == "SpecBenchRun"
    }
