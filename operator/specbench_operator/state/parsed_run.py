"""Parses runs and remembers the last ones, because one reconciliation needs the parsed run up to six times."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pydantic_core import from_json, to_json

from specbench_api.spec.parsing import parse_run
from specbench_api.spec.run import Metadata, SpecBenchRun

REMEMBERED_MAX = 256
_METADATA = tuple(Metadata.model_fields)


def parsed_run(resource: Mapping[str, Any]) -> SpecBenchRun:
    """The run, without its status. Raises InvalidSpec with every problem."""
    meta = resource["metadata"]
    read = {**resource, "metadata": {name: meta[name] for name in _METADATA if name in meta}}
    read.pop("status", None)
    return _parsed(to_json(read))


@lru_cache(maxsize=REMEMBERED_MAX)
def _parsed(text: bytes) -> SpecBenchRun:
    return parse_run(from_json(text))
