"""The table engine × method: what exists, from where we know it, and what to use where it does not.

Data, and the one place that drives admission, the docs and the tests.
"""

from __future__ import annotations

from dataclasses import dataclass

from specbench_api.spec.drafter import Method
from specbench_api.spec.engine import EngineKind


@dataclass(frozen=True)
class Cell:
    """One pair: `supported` with how, or not with why; `instead` is what to write then."""

    supported: bool
    how: str
    source: str
    instead: str = ""


_LLAMA = "llama.cpp llama-server --help and our own runs on xllamacpp 2026.10.11549"
_OURS = "specbench simulate"
_OURS_TOO = "specbench measure"
_RUNNING = "an endpoint that already runs has the drafter that it was started with"
_LATER = "this version of specbench does not launch it yet"

CELLS: dict[tuple[EngineKind, Method], Cell] = {
    **{(EngineKind.EXTERNAL, method): Cell(False, _RUNNING, _OURS_TOO, "specbench measure") for method in Method},
    **{(EngineKind.SIMULATOR, method): Cell(True, f"--drafter {method}", _OURS) for method in Method},
    (EngineKind.LLAMA_CPP, Method.NONE): Cell(True, "no --spec-type", _LLAMA),
    (EngineKind.LLAMA_CPP, Method.NGRAM): Cell(True, "--spec-type ngram-simple", _LLAMA),
    (EngineKind.LLAMA_CPP, Method.DRAFT_MODEL): Cell(True, "--spec-type draft-simple", _LLAMA),
    (EngineKind.LLAMA_CPP, Method.EAGLE): Cell(False, "llama.cpp has no EAGLE-1", _LLAMA, "draft_model or ngram"),
    (EngineKind.LLAMA_CPP, Method.EAGLE3): Cell(
        False, f"llama.cpp has --spec-type draft-eagle3, but {_LATER}", _LLAMA, "draft_model or ngram"
    ),
    (EngineKind.LLAMA_CPP, Method.MTP): Cell(
        False, f"llama.cpp has --spec-type draft-mtp, but {_LATER}", _LLAMA, "draft_model or ngram"
    ),
    (EngineKind.LLAMA_CPP, Method.MEDUSA): Cell(False, "llama.cpp has no Medusa heads", _LLAMA, "draft_model or ngram"),
    (EngineKind.LLAMA_CPP, Method.SUFFIX): Cell(False, "llama.cpp has no suffix decoding", _LLAMA, "ngram"),
}


def cell(kind: EngineKind, method: Method) -> Cell:
    """The pair's cell. Every pair has one: a test walks the whole table."""
    return CELLS[kind, method]
