"""`decide --emit`: every engine in full, and what is refused.

The golden files are also the cases of hack/engine-parsers. SPECBENCH_REWRITE_GOLDEN=1 rewrites them; the tests still
fail then, so that the difference is reviewed first.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from specbench_api.outcome.exit_codes import Exit
from specbench_api.outcome.layout import PLAN, SUMMARY, run_root
from specbench_api.plan.plan import Plan
from specbench_api.spec.engine import EngineKind
from specbench_client.analysis.decision.deployment import deployment_of
from specbench_client.analysis.decision.recommendation import recommend
from specbench_client.analysis.decision.request import RecommendationRequest
from specbench_client.cli import exit_code
from specbench_client.documents.summary import Cell, RunSummary
from specbench_client.errors import BadInput, EvidenceInsufficient
from specbench_client.local import llama_server
from specbench_client.report.text.deployment import CHECKS, USES, deployment_text
from specbench_client.store.folder import FolderStore
from specbench_testing.decision_summaries import Given, plan_of, summary_of

GOLDEN = Path(__file__).parent / "golden"
UID = "0190a000-0000-7000-8000-000000000000"
BASE = Given("none")
EAGLE3 = {"name": "eagle3", "method": "eagle3", "model": "acme/eagle3-head", "numSpeculativeTokens": 3}
SCHEDULED = EAGLE3 | {"draftLengths": [{"batchSize": 8, "tokens": 3}, {"batchSize": 64, "tokens": 1}]}
NGRAM = {"name": "ngram", "method": "ngram", "numSpeculativeTokens": 4, "promptLookupMax": 3}
SHORTER = NGRAM | {"draftLengths": [{"batchSize": 4, "tokens": 4}, {"batchSize": 32, "tokens": 2}]}
DRAFT_FILE = {
    "name": "draft",
    "method": "draft_model",
    "model": "/models/draft.gguf",
    "args": ["--spec-draft-p-min=0.4"],
}

RENDERED: dict[EngineKind, dict[str, Any]] = {
    EngineKind.VLLM: SCHEDULED,
    EngineKind.SGLANG: SCHEDULED,
    EngineKind.TENSORRT_LLM: SHORTER,
    EngineKind.LLAMA_CPP: DRAFT_FILE,
}
"""The drafter of each engine's golden file."""


def measured(kind: EngineKind | str, drafter: dict[str, Any] = EAGLE3) -> Plan:
    return plan_of([drafter], engine={"kind": str(kind)}, model={"name": "acme/tiny", "path": "/models/tiny"})


def paying(arm: str = "eagle3", **options: Any) -> RunSummary:
    gains = ((1, 1.8), (8, 1.4), (32, 0.9))
    cells = (Given(arm, load, gain=gain, tps=100 * gain) for load, gain in gains)
    return summary_of(*(Given("none", load) for load, _ in gains), *cells, **options)


def emitted(plan: Plan, summary: RunSummary, workload: str | None = None) -> str:
    recommendation = recommend(plan, summary, RecommendationRequest())
    deployment = deployment_of(plan, summary, recommendation, workload)
    return deployment_text(deployment, "specbench decide s3://bench/runs/u --emit")


def settings_of(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith("#"))


@pytest.mark.runs
@pytest.mark.parametrize("kind", RENDERED)
def test_each_engine_matches_its_golden_file(kind: EngineKind) -> None:
    drafter = RENDERED[kind]
    file, text = GOLDEN / f"emit-{kind}.txt", emitted(measured(kind, drafter), paying(drafter["name"]))
    before = file.read_text() if file.exists() else ""
    if os.environ.get("SPECBENCH_REWRITE_GOLDEN") == "1":
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert text == before, f"{file.name} differs; SPECBENCH_REWRITE_GOLDEN=1 rewrites it"


@pytest.mark.runs
def test_every_engine_has_a_golden_file_and_a_statement_of_its_check() -> None:
    assert set(RENDERED) == set(CHECKS) == set(USES)
    assert {f"emit-{kind}.txt" for kind in RENDERED} == {file.name for file in GOLDEN.glob("emit-*")}


@pytest.mark.runs
def test_the_adapter_is_part_of_the_evidence() -> None:
    adapted = {"name": "acme/tiny", "adapter": {"name": "sql", "model": "acme/sql"}}
    plan = plan_of([EAGLE3], engine={"kind": "vllm"}, model=adapted)
    text = emitted(plan, paying())
    assert "# Adapter, without which nothing was measured: acme/sql\n" in text


@pytest.mark.runs
@pytest.mark.engine
@pytest.mark.parametrize("drafter", [NGRAM, DRAFT_FILE], ids=["ngram", "draft model"])
def test_llama_cpp_flags_set_parameters_of_the_library(drafter: dict[str, Any]) -> None:
    """The wheel has llama.cpp's parameters, but not its parser: ours reads the flags."""
    text = emitted(measured("llama-cpp", drafter), paying(drafter["name"]))
    context = llama_server.llama_server.make_context("llama-server", shlex.split(settings_of(text)))
    values = llama_server.given_values(context.params)
    llama_server.reject_ineffective_flags(values, {})
    library = llama_server.load_library()
    params = library.CommonParams()
    llama_server.configure(params, values, library)
    if drafter is NGRAM:
        assert (params.speculative.ngram_simple.size_n, params.speculative.ngram_simple.size_m) == (3, 4)
    else:
        assert (params.speculative.draft.mparams.path, params.speculative.draft.n_max) == ("/models/draft.gguf", 3)


def two_workloads(*gains: tuple[str, str, float]) -> RunSummary:
    """Each workload with a baseline and one drafter with this gain."""
    cells = [
        each
        for workload, arm, gain in gains
        for each in (Given("none", workload=workload), Given(arm, gain=gain, tps=100 * gain, workload=workload))
    ]
    return summary_of(*cells)


BOTH = [EAGLE3, NGRAM]
WORKLOADS = [{"name": name, "dataset": {"source": "jsonl", "uri": f"{name}.jsonl"}} for name in ("chat", "code")]
EXTERNAL = {"kind": "external", "endpoints": [{"name": "eagle3", "url": "http://engine:8000"}]}
REFUSED: dict[str, tuple[str, RunSummary, str, str]] = {
    "simulated": ("vllm", paying(simulated=True), "Simulated", "measure a real engine"),
    "simulator": ("simulator", paying(), "Simulated", "measure a real engine"),
    "endpoint": ("external", paying(), "DrafterUnknown", "options are unknown"),
    "research runtime": ("transformers", paying("ngram"), "ResearchRuntime", "measure the arm on the engine"),
    "untrustworthy": (
        "vllm", paying(doubts=["ClientSaturated"]), "NotTrustworthy", "its report",
    ),
    "inconclusive": (
        "vllm", summary_of(BASE, Given("eagle3", gain=1.2, half=0.3)), "Inconclusive",
        "chat: inconclusive: eagle3 is indistinguishable (1.20x [0.89, 1.62]",
    ),
    "too wide": (
        "vllm", summary_of(BASE, Given("eagle3", gain=1.2, half=0.6)), "Inconclusive",
        "chat: inconclusive: eagle3 is unknown: interval too wide (1.20x",
    ),
    "too few repeats": (
        "vllm", summary_of(BASE, Given("eagle3", gain=2.0, repeats=2)), "Inconclusive",
        "too few repeats",
    ),
    "invalid": (
        "vllm", summary_of(BASE, Given("eagle3", gain=2.0, valid=False)), "Inconclusive",
        "eagle3 is unknown at 1 (invalid): measure again",
    ),
    "slower": (
        "vllm", summary_of(BASE, Given("eagle3", gain=0.8)), "NoDrafterPays",
        "deploy without a drafter",
    ),
    "workloads differ": (
        "vllm", two_workloads(("chat", "eagle3", 1.5), ("code", "ngram", 1.5)),
        "WorkloadsDiffer", "(chat: eagle3; code: ngram): give --workload chat or --workload code",
    ),
    "one workload": (
        "vllm", two_workloads(("chat", "eagle3", 1.5), ("code", "eagle3", 0.8)),
        "NoDrafterPays", "or give --workload chat",
    ),
    "nothing": ("vllm", summary_of(), "NothingMeasured", "nothing was measured"),
}  # fmt: skip


@pytest.mark.runs
@pytest.mark.parametrize("case", REFUSED)
def test_what_the_evidence_does_not_allow_is_refused(case: str) -> None:
    kind, summary, reason, message = REFUSED[case]
    arms = [each for each in BOTH if each["name"] in {cell.arm for cell in summary.cells}]
    plan = plan_of(arms or BOTH, workloads=WORKLOADS)
    engine = plan.engine.model_validate(EXTERNAL if kind == "external" else {"kind": kind})
    with pytest.raises(EvidenceInsufficient) as raised:
        emitted(plan.model_copy(update={"engine": engine}), summary)
    assert raised.value.reason == reason
    assert message in str(raised.value)


@pytest.mark.runs
def test_one_workload_is_deployed_with_its_own_evidence() -> None:
    plan = plan_of(BOTH, engine={"kind": "vllm"}, workloads=WORKLOADS)
    summary = two_workloads(("chat", "eagle3", 1.5), ("code", "ngram", 1.5))
    text = emitted(plan, summary, "code")
    assert '"method":"ngram"' in settings_of(text)
    assert "Gain on code at 1: " in text
    assert "Gain on chat" not in text
    with pytest.raises(BadInput, match="no such workload: give one of chat, code"):
        emitted(plan, summary, "maths")


@pytest.mark.runs
@pytest.mark.parametrize("argument", ["--x=a\x1b[2Jb", "--x=a\u202eb", "--x=a\nb"])
def test_an_argument_with_characters_that_cannot_be_shown_is_refused(argument: str) -> None:
    """Shown as escapes, it would be another argument than the measured one."""
    with pytest.raises(EvidenceInsufficient, match="cannot be shown"):
        emitted(measured("vllm", EAGLE3 | {"args": [argument]}), paying())


def points_of(plan: Plan, cell: Cell) -> list[str]:
    return [each.hash for each in plan.points if (each.arm, each.level) == (cell.arm, cell.level)]


def stored(folder: Path, plan: Plan, summary: RunSummary) -> Path:
    store = FolderStore(folder / run_root("local", "small", UID))
    store.put(PLAN, plan.model_copy(update={"namespace": "local", "name": "small", "uid": UID}).to_json().encode())
    cells = [cell.model_copy(update={"points": points_of(plan, cell)}) for cell in summary.cells]
    store.put(SUMMARY, summary.model_copy(update={"uid": UID, "cells": cells}).to_json().encode())
    return folder


@pytest.mark.runs
def test_command_prints_the_settings_and_the_command_that_prints_them_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = stored(tmp_path, measured("vllm"), paying())
    options = ["--slo-tpot-ms", "35", "--load", "8", "--machine-price", "1", "--emit"]
    assert exit_code(["decide", str(folder), "--latest", *options]) == Exit.OK
    first = capsys.readouterr().out
    (line,) = [line for line in " ".join(first.replace("\n#  ", "").splitlines()).split("# ") if "Reproduce" in line]
    command = shlex.split(line.removeprefix("Reproduce: ").partition(" --speculative-config")[0])
    assert command[:2] == ["specbench", "decide"]
    assert "--latest" not in command
    assert exit_code(command[1:]) == Exit.OK
    again = capsys.readouterr().out
    assert settings_of(again) == settings_of(first)
    assert "TPOT p95" in again


@pytest.mark.runs
@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--emit", "--slo-tpot-ms", "1"), Exit.UNTRUSTWORTHY, "error: NothingMeetsTheTargets: "),
        (("--emit", "-o", "json"), Exit.BAD_INPUT, "--emit has its own format: remove --output"),
        (("--workload", "chat"), Exit.BAD_INPUT, "add --emit"),
    ],
)
def test_refusals_have_an_exit_code_and_print_no_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], code: Exit, message: str
) -> None:
    folder = stored(tmp_path, measured("vllm"), paying())
    assert exit_code(["decide", str(folder), *options]) == code
    printed = capsys.readouterr()
    assert message in printed.err
    assert "--speculative-config" not in printed.out


@pytest.mark.runs
@pytest.mark.parametrize("model", ["acme/eagle3-head", "a\n--trust-remote-code"], ids=["plain", "line break"])
def test_settings_are_the_drafters_flag_alone(model: str) -> None:
    """Those of the measurement are not deployed, and a name with a line break stays in its comment."""
    (settings,) = settings_of(emitted(measured("vllm", EAGLE3 | {"model": model}), paying())).splitlines()
    flag, _ = shlex.split(settings)
    assert flag == "--speculative-config"
