"""Renders the settings of a deployment (`decide --emit`) in its engine's form, with the evidence as comments."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Mapping

import yaml

from specbench_api.api_model import in_words
from specbench_api.launch.launcher import target_path
from specbench_api.launch.supported_methods import SGLANG_RELEASE, VLLM_RELEASE
from specbench_api.spec.engine import EngineKind
from specbench_api.spec.parsing import read_yaml
from specbench_client.analysis.decision.deployment import Deployment
from specbench_client.documents.figure import Verdict
from specbench_client.documents.recommendation import Candidate
from specbench_client.report.text.text_table import with_interval
from specbench_client.visible_text import visible

WIDTH = 120
USES: Mapping[EngineKind, str] = {
    EngineKind.VLLM: "Flags of `vllm serve`.",
    EngineKind.SGLANG: "Flags of `python -m sglang.launch_server`.",
    EngineKind.TENSORRT_LLM: "YAML for `trtllm-serve --extra_llm_api_options FILE`.",
    EngineKind.LLAMA_CPP: "Flags of `llama-server`.",
}
"""What the output is."""
CHECKS: Mapping[EngineKind, str] = {
    EngineKind.VLLM: f"vLLM {VLLM_RELEASE}'s own parser accepts this form (make engine-parsers).",
    EngineKind.SGLANG: f"SGLang {SGLANG_RELEASE}'s own parser accepts this form (make engine-parsers).",
    EngineKind.TENSORRT_LLM: (
        "This form is not checked: TensorRT-LLM's parser is not available without a GPU. It is written from the"
        " documentation of TensorRT-LLM 1.2 (Speculative Decoding)."
    ),
    EngineKind.LLAMA_CPP: (
        "specbench's own parser of llama-server's flags accepts this form, and llama.cpp's library (xllamacpp) has the"
        " parameters; llama-server's own parser did not check it."
    ),
}
"""What accepted the form in our tests, or what it was written from."""
_SGLANG_LIMIT = "When it drafts, SGLang serves at most 48 requests at once unless --max-running-requests is set."


def deployment_text(deployment: Deployment, command: str) -> str:
    """Return comments and settings. `command`: the command line that prints the same again."""
    comments = [*_evidence(deployment), *_conditions(deployment), f"Reproduce: {command}"]
    lines = [line for comment in comments for line in _comment(comment)]
    return "\n".join([*lines, _settings(deployment).rstrip("\n")]) + "\n"


def _comment(text: str) -> list[str]:
    """Return comment lines. Line breaks of names from elsewhere must not end the comment."""
    plain = " ".join(visible(text).split())
    return textwrap.wrap(
        plain, WIDTH, initial_indent="# ", subsequent_indent="#   ", break_long_words=False, break_on_hyphens=False
    )


def _evidence(deployment: Deployment) -> list[str]:
    plan, summary, recommendation = deployment.plan, deployment.summary, deployment.recommendation
    drafter = deployment.arm.drafter
    model = f", model {drafter.model}{_revision(drafter.revision)}" if drafter and drafter.model else ""
    source, adapter = target_path(plan.target) or plan.target.uri, plan.target.adapter
    method = f": {drafter.algorithm or drafter.method}{model}" if drafter else ""
    return [
        f"Drafter {deployment.arm.name}{method}. {USES[deployment.plan.engine.kind]}",
        f"Run: {summary.namespace}/{summary.name}, uid {summary.uid}, summarised {summary.created}",
        f"Model: {plan.target.name}{f', read from {source}' if source else _revision(plan.target.revision)}",
        *([f"Adapter, without which nothing was measured: {adapter.model}"] if adapter else []),
        f"Engine: {plan.engine.kind} {deployment.engine_version}",
        f"Answer: {recommendation.sentence}",
        *(f"Gain on {each.workload} at {each.load}: {_gain(each)}" for each in deployment.candidates),
        *(f"Constraint: {each}" for each in recommendation.constraints),
    ]


def _revision(revision: str | None) -> str:
    return f" at revision {revision}" if revision else ""


def _gain(each: Candidate) -> str:
    """Return the gain over the baseline at the same load with its conclusion, or why there is none."""
    if each.excluded:
        return f"not usable: {each.excluded}"
    conclusion = f", {in_words(each.conclusion)}" if each.conclusion else ""
    doubts = f"; findings: {', '.join(each.doubts)}" if each.doubts else ""
    return f"{with_interval(each.gain)} times the baseline{conclusion}{doubts}"


def _conditions(deployment: Deployment) -> list[str]:
    """Return the conditions of the measurement, what the settings refer to, and the limits."""
    baseline = deployment.baseline
    paths = [path for field, path in deployment.launch.files.items() if not field.startswith("spec.model")]
    sglang = deployment.plan.engine.kind is EngineKind.SGLANG
    return [
        f"The gain is known only for these settings, with which every arm ran: {shlex.join(baseline.args)}",
        *_configs(deployment),
        *([_SGLANG_LIMIT] if sglang else []),
        *(f"Read from the engine's disk: {path}" for path in paths),
        *_slower(deployment),
        *(f"Limit: {each}" for each in deployment.recommendation.limits),
        f"Check: {CHECKS[deployment.plan.engine.kind]}",
    ]


def _slower(deployment: Deployment) -> list[str]:
    found = [each for each in deployment.candidates if each.conclusion is Verdict.WORSE]
    loads = ", ".join(f"{each.load} on {each.workload}" for each in found)
    return [f"Limit: slower than without a drafter at load {loads}: do not deploy it for that load."] if found else []


def _configs(deployment: Deployment) -> list[str]:
    """Return the configuration files that the arguments refer to, or the configuration that every arm had."""
    if deployment.launch.drafting_config:
        common = {name: read_yaml(text, name) for name, text in deployment.baseline.configs.items()}
        return [f"{name} of every arm: {json.dumps(each)}" for name, each in common.items()]
    # Without spaces, a wrapped comment keeps the document on one line, from which it can be copied.
    files = {name: json.loads(text) for name, text in deployment.launch.configs.items()}
    return [
        f"Content of {name}, for the path below: {json.dumps(each, separators=(',', ':'))}"
        for name, each in files.items()
    ]


def _settings(deployment: Deployment) -> str:
    """Return the settings without comments."""
    args = shlex.join(deployment.launch.drafting)
    if deployment.plan.engine.kind is not EngineKind.TENSORRT_LLM:
        return args
    flags = _comment(f"Further flags of trtllm-serve: {args}") if args else []
    config = dict(deployment.launch.drafting_config)
    return "\n".join([*flags, yaml.safe_dump(config, sort_keys=False, allow_unicode=False, width=10_000)])
