"""The complete runs in docs/how-to/placement.md, each with the values of the fence that allow it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
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
    """Name → the run. The first is complete, and each of the others shows the placement with which it differs."""
    page = PAGE.read_text(encoding="utf-8")
    begin, end = page.index("### RDMA"), page.index("## Provide the model")
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.+?)```", page[begin:end], re.DOTALL)]
    whole = blocks[0]
    placements = [whole["spec"]["placement"], *(block["placement"] for block in blocks[2::2])]
    names = re.findall(r"^### (\w+)$", page[begin:end], re.MULTILINE)
    return {
        name.lower(): DocumentedRun({**whole, "spec": {**whole["spec"], "placement": placement}}, values["fence"])
        for name, placement, values in zip(names, placements, blocks[1::2], strict=True)
    }
