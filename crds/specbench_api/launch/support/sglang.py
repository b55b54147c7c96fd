"""SGLang."""

from specbench_api.launch.support.cell import Cell, Cells, Evidence
from specbench_api.spec.drafter import Method

RELEASE = "0.5.23"

_SOURCE = f"source of sglang {RELEASE}: srt/arg_groups/fields/spec.py, speculative_hook.py"
_HEADS = "eagle3, with a head trained for the target"


def _yes(how: str) -> Cell:
    return Cell(True, how, f"{_SOURCE}; its own parser takes the command line", evidence=Evidence.PARSER)


def _no(why: str, instead: str) -> Cell:
    return Cell(False, why, _SOURCE, instead, Evidence.SOURCE)


CELLS: Cells = {
    Method.NONE: _yes("no --speculative-algorithm"),
    Method.NGRAM: _yes("--speculative-algorithm NGRAM"),
    Method.DRAFT_MODEL: _yes("--speculative-algorithm STANDALONE"),
    Method.EAGLE: _yes("--speculative-algorithm EAGLE"),
    Method.EAGLE3: _yes("--speculative-algorithm EAGLE3"),
    Method.MTP: _yes("--speculative-algorithm NEXTN"),
    Method.MEDUSA: _no("SGLang has no Medusa heads", _HEADS),
    Method.LOOKAHEAD: _no("SGLang has no lookahead decoding", "ngram"),
    Method.SUFFIX: _no("SGLang has no suffix decoding; its n-grams remember other requests' text too", "ngram"),
    Method.PARD: _no("SGLang has no parallel drafting by a PARD model", "draft_model or dflash"),
    Method.DFLASH: _yes("--speculative-algorithm DFLASH"),
    Method.DSPARK: _yes("--speculative-algorithm DSPARK"),
    Method.CUSTOM: _yes("--speculative-algorithm with the algorithm's own name"),
}
