"""TensorRT-LLM, on the PyTorch backend of its server."""

from specbench_api.launch.support.cell import Cell, Cells
from specbench_api.spec.drafter import Method

RELEASE = "1.2.1"

_DOCS = "documentation and release notes of TensorRT-LLM 1.2, and llm_args.py of its release candidates"
_NEWER = "an image of 1.3, method custom and that name as algorithm"


def _yes(how: str) -> Cell:
    return Cell(True, how, _DOCS)


def _no(why: str, instead: str) -> Cell:
    return Cell(False, why, _DOCS, instead)


def _engines_alone(name: str, instead: str) -> Cell:
    return _no(f"{name} needs the TensorRT backend, and the baseline would run on another", instead)


CELLS: Cells = {
    Method.NONE: _yes("no speculative_config"),
    Method.NGRAM: _yes("decoding_type: NGram"),
    Method.DRAFT_MODEL: _yes("decoding_type: DraftTarget"),
    Method.EAGLE: _no("decoding_type Eagle is EAGLE-3 on the PyTorch backend", "eagle3"),
    Method.EAGLE3: _yes("decoding_type: Eagle"),
    Method.MTP: _yes("decoding_type: MTP"),
    Method.MEDUSA: _engines_alone("Medusa", "eagle3"),
    Method.LOOKAHEAD: _engines_alone("lookahead decoding", "ngram"),
    Method.SUFFIX: _no("TensorRT-LLM 1.2 has no suffix decoding", "ngram"),
    Method.PARD: _no("TensorRT-LLM 1.2 has no PARD", _NEWER),
    Method.DFLASH: _no("TensorRT-LLM 1.2 has no DFlash", _NEWER),
    Method.DSPARK: _no("TensorRT-LLM 1.2 has no DSpark", _NEWER),
    Method.CUSTOM: _yes("decoding_type: the algorithm's own name"),
}
