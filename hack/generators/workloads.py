"""Renders docs/reference/workloads.md: replaces the table of sources between its markers."""

from __future__ import annotations

from generators.marked import replaced
from specbench_client.workload.sources.registry import render_sources


def page() -> str:
    """Return the whole page; text outside the markers is written by hand."""
    return replaced("docs/reference/workloads.md", {"sources": render_sources()})
