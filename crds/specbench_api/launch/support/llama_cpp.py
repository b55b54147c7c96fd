"""llama.cpp's llama-server."""

from specbench_api.launch.support.cell import Cell, Cells, Evidence
from specbench_api.spec.drafter import Method

_RUN = "our own runs on xllamacpp 2026.10.11549"
_HELP = "llama-server --help of a 2026-10 build"
_INSTEAD = "draft_model or ngram"


def _drafted(spec_type: str, note: str = "") -> Cell:
    """A type that drafts with weights made for it, for which we had none to run."""
    return Cell(True, f"--spec-type {spec_type}{note}", _HELP, evidence=Evidence.DOCS)


CELLS: Cells = {
    Method.NONE: Cell(True, "no --spec-type", _RUN, evidence=Evidence.RUN),
    Method.NGRAM: Cell(True, "--spec-type ngram-simple", _RUN, evidence=Evidence.RUN),
    Method.DRAFT_MODEL: Cell(True, "--spec-type draft-simple", _RUN, evidence=Evidence.RUN),
    Method.EAGLE: Cell(False, "llama.cpp has no EAGLE-1", _HELP, _INSTEAD),
    Method.EAGLE3: _drafted("draft-eagle3", "; a chain, not a tree"),
    Method.MTP: _drafted("draft-mtp", "; model only where the extra layers are not in the target's own file"),
    Method.MEDUSA: Cell(False, "llama.cpp has no Medusa heads", _HELP, _INSTEAD),
    Method.LOOKAHEAD: Cell(False, "llama-server has no lookahead decoding", _HELP, "ngram"),
    Method.SUFFIX: Cell(False, "llama.cpp has no suffix decoding", _HELP, "ngram"),
    Method.PARD: Cell(False, "llama.cpp has no parallel drafting", _HELP, _INSTEAD),
    Method.DFLASH: _drafted("draft-dflash"),
    Method.DSPARK: _drafted("draft-dspark"),
    Method.CUSTOM: Cell(
        True, "--spec-type ngram-mod, ngram-map-k, ngram-map-k4v or ngram-cache", _RUN, evidence=Evidence.RUN
    ),
}
