"""docs/reference/workloads.md: every example is valid, and the page lists every source."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from specbench_api.spec.dataset import Source
from specbench_api.spec.load import Load
from specbench_api.spec.workload import Workload

PAGE = (Path(__file__).resolve().parents[2] / "docs/reference/workloads.md").read_text(encoding="utf-8")
EXAMPLES = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.+?)```", PAGE, re.DOTALL)]


def test_every_example_is_valid() -> None:
    workloads = [row for example in EXAMPLES for row in example.get("workloads", [])]
    loads = [example["load"] for example in EXAMPLES if "load" in example]
    assert (len(workloads), len(loads)) == (9, 1)
    read = [Workload.model_validate(row) for row in workloads]
    assert [row.name for row in read] == [
        "mine",
        "qualitative",
        "maths",
        "production",
        "log",
        "math",
        "form",
        "call",
        "rendered",
    ]
    assert read[3].dataset.source is Source.MIX
    assert all(Load.model_validate(row).arrival for row in loads)


def test_the_page_lists_every_source() -> None:
    assert [source for source in Source if f"`{source}`" not in PAGE and f"source: {source}" not in PAGE] == []
