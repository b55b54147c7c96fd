"""Recognises a file by its content, not its name, and reads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specbench_client.bounded_json import parse_json
from specbench_client.errors import BadInput
from specbench_client.peer_results import aiperf, guidellm, inference_perf, vllm_sglang
from specbench_client.peer_results.reading import (
    NOT_PEER_FILE,
    PeerReading,
    reject_other_units,
    without_bare_tails,
)
from specbench_client.visible_text import visible

KNOWN = (
    "vllm bench serve (--save-result), SGLang bench_serving (--output-file), AIPerf (profile_export.jsonl,"
    " profile_export_aiperf.json), guidellm (benchmarks.json, .csv), inference-perf (*lifecycle_metrics.json)"
)
MAX_BYTES = 2 * 1024**3
"""Largest file that is read: details of a million requests."""


@dataclass(frozen=True)
class PeerFormat:
    """A format: whether a parsed document has it, and its reader (document, name of the file)."""

    recognise: Callable[[Any], bool]
    read: Callable[[Any, str], list[PeerReading]]


FORMATS = (
    PeerFormat(vllm_sglang.is_sglang, lambda data, name: vllm_sglang.read_sglang([data], name)),
    PeerFormat(vllm_sglang.is_vllm, vllm_sglang.read_vllm),
    PeerFormat(guidellm.is_guidellm, guidellm.read_guidellm),
    PeerFormat(inference_perf.is_lifecycle, inference_perf.read_lifecycle),
    PeerFormat(
        inference_perf.is_lifecycle_rows,
        lambda data, name: inference_perf.read_lifecycle_rows(data, name, _stage(name)),
    ),
    PeerFormat(aiperf.is_summary, aiperf.read_summary),
)


def read_peer_file(path: Path) -> list[PeerReading]:
    """Read a result file of another benchmark. Raises BadInput."""
    name, text = str(path), _text(path)
    try:
        readings = _readings(path, text)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise BadInput(
            f"{name}: does not have the form that its benchmark writes ({visible(str(error)).partition(chr(10))[0]}):"
            " the file is damaged, or of a version that specbench does not know; write it again",
            NOT_PEER_FILE,
        ) from error
    for reading in readings:
        reject_other_units(reading.result, reading.requests)
    if not readings:
        raise BadInput(f"{name}: is not a result file that specbench recognises: give a file of {KNOWN}", NOT_PEER_FILE)
    if not any(reading.result.figures or reading.requests for reading in readings):
        raise BadInput(
            f"{name}: is a result of {readings[0].result.tool}, but has neither figures nor requests: was its run"
            " interrupted? Run the benchmark again",
            NOT_PEER_FILE,
        )
    return [replace(reading, result=without_bare_tails(reading.result)) for reading in readings]


def _readings(path: Path, text: str) -> list[PeerReading]:
    name = str(path)
    if path.suffix == ".csv" or guidellm.is_guidellm_csv(text):
        return guidellm.read_guidellm_csv(text, name) if guidellm.is_guidellm_csv(text) else []
    return _read_documents(_documents(text, name), name)


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BadInput(f"{path}: is larger than {MAX_BYTES // 1024**3} GiB: import the summary instead")
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise BadInput(f"{path}: cannot be read: {reason}: give a text file that exists") from error


def _documents(text: str, name: str) -> list[Any]:
    """Return the JSON document or the JSON lines of a file; nothing if it is not JSON."""
    if text.lstrip()[:1] not in ("{", "["):
        return []
    try:
        return [parse_json(text)]
    except ValueError:
        lines = [line for line in text.splitlines() if line.strip()]
    documents = []
    for number, line in enumerate(lines, start=1):
        try:
            documents.append(parse_json(line))
        except json.JSONDecodeError as error:
            place = f"{name}, line {number}" if len(lines) > 1 else name
            raise BadInput(
                f"{place}: is not valid JSON: {error}: was the benchmark stopped while it wrote? Remove the line, or"
                " run it again",
                NOT_PEER_FILE,
            ) from error
    return documents


def _read_documents(documents: list[Any], name: str) -> list[PeerReading]:
    if documents and all(map(aiperf.is_aiperf_row, documents)):
        return aiperf.read_aiperf_rows(documents, name, _beside(name, "profile_export_aiperf.json"))
    if len(documents) > 1 and all(map(vllm_sglang.is_sglang, documents)):
        return vllm_sglang.read_sglang(documents, name)
    readings = []
    for document in documents:
        found = next((form for form in FORMATS if form.recognise(document)), None)
        readings += found.read(document, name) if found else []
    return readings


def _stage(name: str) -> Any:
    """Return inference-perf's report of the only stage, from the folder of its requests."""
    stages = list(Path(name).parent.glob("*stage_*_lifecycle_metrics.json"))
    return _beside(name, stages[0].name) if len(stages) == 1 else None


def _beside(name: str, other: str) -> Any:
    """Return the document of another file in the same folder; None if there is none."""
    path = Path(name).parent / other
    try:
        return parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
