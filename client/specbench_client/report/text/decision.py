"""Tables and lines of a recommendation, for a terminal, Markdown and the report."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace

import yaml

from specbench_api.api_model import in_words
from specbench_api.launch.launcher import target_path
from specbench_api.launch.supported_methods import SGLANG_RELEASE, VLLM_RELEASE
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.engine import EngineKind
from specbench_api.spec.parsing import read_yaml
from specbench_client.analysis.decision.deployment import Deployment
from specbench_client.documents.figure import Verdict
from specbench_client.documents.recommendation import (
    ArmChoice,
    Attainment,
    Candidate,
    Objective,
    Recommendation,
    RecommendationAnswer,
)
from specbench_client.report.text.text_table import (
    AT_LEVEL,
    DASH,
    Report,
    TextTable,
    Topic,
    constant_columns,
    number,
    percent,
    with_interval,
    without_columns,
)
from specbench_client.visible_text import visible

Row = Sequence[str]
CANDIDATES = ("Arm", "Workload", "Load", "Value", f"Gain {AT_LEVEL}", "Conclusion", "Targets", "Cost/1M", "Saved")
"""The value has no interval: that of its repeats alone is narrower than that of the gain, which also covers prompts."""
SUSTAINED = ("Arm", "Workload", "Up to", "Shown to", "Missed at", "Reason")
ANSWERS = ("Workload", "Load", "Answer", "Why")


def choices_table(recommendation: Recommendation) -> TextTable:
    """Return for each workload the answer over all loads, then at each load; no rows without a baseline."""
    rows = list[Row]()
    for choice in recommendation.choices:
        at = f"{choice.load} (best)" if choice.load else "all loads"
        several = [(each, each.load) for each in choice.at_each_load] if len(choice.at_each_load) > 1 else []
        rows += [(choice.workload, load, _answer(each), each.why) for each, load in [(choice, at), *several]]
    has_baseline = any(each.arm == BASELINE_NAME for each in recommendation.candidates)
    return _of_workloads(TextTable("Answers", ANSWERS, rows if has_baseline else [], words=ANSWERS))


def _of_workloads(table: TextTable) -> TextTable:
    """Return the table, without its workloads if there is only one."""
    return without_columns(table, constant_columns(table, ["Workload"]))


def _answer(choice: ArmChoice) -> str:
    pays = choice.answer is RecommendationAnswer.DRAFTER
    return f"{choice.arm} pays" if pays else in_words(choice.answer)


def evidence_table(recommendation: Recommendation) -> TextTable:
    """Return every arm at every load."""
    asked = bool(recommendation.targets)
    rows = [_candidate(each, targets=asked) for each in recommendation.candidates]
    unit = next((each.value.unit for each in recommendation.candidates if each.value), "")
    unit += " per million output tokens" if recommendation.objective is Objective.COST else ""
    table = TextTable(
        f"Evidence ({in_words(recommendation.objective)}{f', {unit}' if unit else ''})",
        CANDIDATES,
        rows,
        words=("Arm", "Workload", "Conclusion", "Targets"),
    )
    # The gain decides, and with prices the cost; a narrow terminal leaves out the others.
    return _of_workloads(replace(table, optional=["Value", "Saved"]))


def sustained_table(recommendation: Recommendation) -> TextTable:
    """Return the load up to which each arm meets the targets; no rows without targets."""
    rows = [
        [each.arm, each.workload, each.load or DASH, each.shown or DASH, each.missed_at or DASH, each.reason]
        for choice in recommendation.choices
        for each in choice.sustained
    ]
    title = "Highest load that meets the targets"
    return _of_workloads(TextTable(title, SUSTAINED, rows, words=("Arm", "Workload", "Reason")))


def decision_report(recommendation: Recommendation) -> Report:
    """Return the sentence, all tables that have rows, and below them prices and limits."""
    tables = (choices_table(recommendation), evidence_table(recommendation), sustained_table(recommendation))
    prices = [f"prices: {recommendation.prices}"] if recommendation.prices else []
    limits = Topic("Limits", lines=[*prices, *(f"limit: {each}" for each in recommendation.limits)])
    topics = [*(Topic(table.title, [table]) for table in tables if table.rows), limits]
    return Report(topics, recommendation.sentence, simulated=recommendation.simulated)


def _candidate(each: Candidate, *, targets: bool) -> Row:
    unjudged = "baseline" if each.arm == BASELINE_NAME else DASH
    conclusion = each.excluded or (in_words(each.conclusion) if each.conclusion else unjudged)
    doubts = f"; findings: {', '.join(each.doubts)}" if each.doubts and not each.excluded else ""
    attained = in_words(each.attainment) if targets or each.attainment is not Attainment.MET else DASH
    return [
        each.arm,
        each.workload,
        each.load,
        number(each.value.value if each.value else None),
        with_interval(each.gain),
        conclusion + doubts,
        attained,
        number(_value(each, "cost_per_million_output_tokens")),
        percent(_value(each, "cost_saved"), 0),
    ]


def _value(each: Candidate, name: str) -> float | None:
    figure = each.figures.get(name)
    return figure.value if figure else None


# Renders the settings of a deployment in its engine's form, with the evidence as comments.


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
