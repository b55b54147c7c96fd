"""Hugging Face transformers, behind our own small server."""

from specbench_api.launch.support.cell import Cell, Cells, Evidence
from specbench_api.spec.drafter import Method

_RUN = "our own runs on transformers 5.19.0 with torch 2.13.0"
_SOURCE = "transformers 5.19.0, generation/candidate_generator.py"
_INSTEAD = "draft_model, ngram or medusa"


def _absent(why: str) -> Cell:
    return Cell(False, why, _SOURCE, _INSTEAD, Evidence.SOURCE)


CELLS: Cells = {
    Method.NONE: Cell(True, "generate", _RUN, evidence=Evidence.RUN),
    Method.NGRAM: Cell(True, "generate(prompt_lookup_num_tokens=…)", _RUN, evidence=Evidence.RUN),
    Method.DRAFT_MODEL: Cell(
        True, "generate(assistant_model=…), the draft's length fixed, no confidence threshold", _RUN,
        evidence=Evidence.RUN,
    ),
    Method.EAGLE: _absent("transformers drafts with no EAGLE head"),
    Method.EAGLE3: _absent("transformers drafts with no EAGLE head"),
    Method.MTP: _absent("transformers drafts with MTP layers of few models, and our server does not ask for it"),
    Method.MEDUSA: Cell(True, "our own loop: the heads' first choices as a chain", _RUN, evidence=Evidence.RUN),
    Method.LOOKAHEAD: _absent("transformers has no lookahead decoding"),
    Method.SUFFIX: _absent("transformers has no suffix decoding"),
    Method.PARD: _absent("transformers has no parallel drafting"),
    Method.DFLASH: _absent("transformers drafts with DFlash of few models, and our server does not ask for it"),
    Method.DSPARK: _absent("transformers has no DSpark"),
    Method.CUSTOM: _absent("our server knows no further methods"),
}  # fmt: skip
