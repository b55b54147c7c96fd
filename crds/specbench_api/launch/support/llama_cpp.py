"""llama.cpp's llama-server."""

from specbench_api.launch.support.cell import Cell, Cells, Evidence
from specbench_api.spec.drafter import Method

_HELP = "llama.cpp llama-server --help and our own runs on xllamacpp 2026.10.11549"
_LATER = "this version of specbench does not launch it yet"
_INSTEAD = "draft_model or ngram"

CELLS: Cells = {
    Method.NONE: Cell(True, "no --spec-type", _HELP, evidence=Evidence.RUN),
    Method.NGRAM: Cell(True, "--spec-type ngram-simple", _HELP, evidence=Evidence.RUN),
    Method.DRAFT_MODEL: Cell(True, "--spec-type draft-simple", _HELP, evidence=Evidence.RUN),
    Method.EAGLE: Cell(False, "llama.cpp has no EAGLE-1", _HELP, _INSTEAD),
    Method.EAGLE3: Cell(False, f"llama.cpp has --spec-type draft-eagle3, but {_LATER}", _HELP, _INSTEAD),
    Method.MTP: Cell(False, f"llama.cpp has --spec-type draft-mtp, but {_LATER}", _HELP, _INSTEAD),
    Method.MEDUSA: Cell(False, "llama.cpp has no Medusa heads", _HELP, _INSTEAD),
    Method.LOOKAHEAD: Cell(False, "llama-server has no lookahead decoding", _HELP, "ngram"),
    Method.SUFFIX: Cell(False, "llama.cpp has no suffix decoding", _HELP, "ngram"),
    Method.PARD: Cell(False, "llama.cpp has no parallel drafting", _HELP, _INSTEAD),
    Method.DFLASH: Cell(False, f"llama.cpp has --spec-type draft-dflash, but {_LATER}", _HELP, _INSTEAD),
    Method.DSPARK: Cell(False, f"llama.cpp has --spec-type draft-dspark, but {_LATER}", _HELP, _INSTEAD),
    Method.CUSTOM: Cell(False, f"llama.cpp has further --spec-type, but {_LATER}", _HELP, _INSTEAD),
}
