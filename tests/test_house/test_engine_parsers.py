"""hack/engine-parsers: its test cases, and how it reads the verdict of a parser. No engine is installed or run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine_parsers.cases import Case, cases_of
from engine_parsers.environments import ENVIRONMENTS
from engine_parsers.judge_process import ask
from engine_parsers.models import DRAFTERS, FURTHER_HEADS, MODELS, TARGETS, write_models
from specbench_api.launch.supported_methods import DEFAULT_RELEASES, SUPPORT_MATRIX, SupportEvidence, support_of
from specbench_api.spec.drafter import NEEDS_MODEL, Method
from specbench_api.spec.engine import EngineKind
from specbench_client.report.text.deployment import CHECKS

PARSER = """\
import argparse
from engine_parsers.judge import judge

def load():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stream-interval-tokens")
    def take(argv):
        print("an engine may write anything to stdout")
        parser.parse_args(argv)
        return "parser"
    return take

judge(load)
"""


@pytest.mark.parametrize("kind", ENVIRONMENTS)
def test_every_supported_method_has_a_parser_case(kind: EngineKind, tmp_path: Path) -> None:
    has = [method for method in Method if support_of(kind, method, DEFAULT_RELEASES.get(kind)).supported]
    case_names = {case.name for case in cases_of(kind, tmp_path)}
    assert {str(method) for method in has if method is not Method.CUSTOM} - case_names == set()
    parser_methods = [
        method for method in Method if SUPPORT_MATRIX[kind, method].evidence.grade is SupportEvidence.PARSER
    ]
    assert [method for method in parser_methods if SUPPORT_MATRIX[kind, method].supported and method not in has] == []


@pytest.mark.parametrize("kind", ENVIRONMENTS)
def test_cases_are_distinct_and_their_model_paths_exist(kind: EngineKind, tmp_path: Path) -> None:
    write_models(tmp_path)
    cases = cases_of(kind, tmp_path)
    assert len({case.name for case in cases}) == len({case.argv for case in cases}) == len(cases)
    paths = [argument for case in cases for argument in case.argv if argument.startswith(str(tmp_path))]
    assert paths
    assert [path for path in paths if not Path(path).exists()] == []


def test_what_decide_emits_is_a_case(tmp_path: Path) -> None:
    for kind in ENVIRONMENTS:
        (argv,) = [case.argv for case in cases_of(kind, tmp_path) if case.name == "emitted"]
        assert any(argument.startswith("--speculative") for argument in argv)
        assert not any("acme/eagle3-head" in argument for argument in argv)
    assert (
        tmp_path / "configs" / "adaptive.json"
    ).read_text() == '{"1":{"candidate_steps":[3]},"9":{"candidate_steps":[1]}}'


def test_the_output_names_the_versions_that_checked_it() -> None:
    assert f"SGLang {ENVIRONMENTS[EngineKind.SGLANG].pinned}'s" in CHECKS[EngineKind.SGLANG]
    assert f"vLLM {ENVIRONMENTS[EngineKind.VLLM].pinned}'s" in CHECKS[EngineKind.VLLM]
    assert ENVIRONMENTS[EngineKind.VLLM].pinned == DEFAULT_RELEASES[EngineKind.VLLM]


def test_every_method_with_a_draft_model_has_a_tiny_model() -> None:
    has = {
        method
        for method in (*NEEDS_MODEL, Method.DSPARK)
        if any(support_of(kind, method, DEFAULT_RELEASES.get(kind)).supported for kind in ENVIRONMENTS)
    }
    assert has == set(DRAFTERS)
    assert {*TARGETS.values(), *DRAFTERS.values(), *FURTHER_HEADS, "llama"} == set(MODELS)


def script(folder: Path, text: str) -> list[str]:
    """The command of a judge with this source text."""
    file = folder / "judge_of_ours.py"
    file.write_text(text)
    return [sys.executable, str(file)]


@pytest.mark.process
def test_a_renamed_flag_is_rejected_even_if_the_old_name_is_a_prefix_of_the_new_one(tmp_path: Path) -> None:
    cases = [Case("old", ("--stream-interval", "1")), Case("new", ("--stream-interval-tokens", "1"))]
    old, new = ask(script(tmp_path, PARSER), cases)
    assert (old.accepted, new.accepted) == (False, True)
    assert old.words == "Refused: unrecognized arguments: --stream-interval 1"
    assert str(new) == "accepted: parser"


@pytest.mark.process
def test_each_case_has_its_own_environment(tmp_path: Path) -> None:
    call = 'judge(lambda: lambda argv: os.environ.get("HERE", "none"))'
    source = f"import os\nfrom engine_parsers.judge import judge\n{call}\n"
    cases = [Case("with", (), {"HERE": "set"}), Case("without", ())]
    assert [verdict.words for verdict in ask(script(tmp_path, source), cases)] == ["set", "none"]


@pytest.mark.process
def test_a_failing_judge_is_an_error_and_not_a_rejection(tmp_path: Path) -> None:
    command = script(tmp_path, "import sys\nsys.stdin.read()\nsys.exit(3)\n")
    with pytest.raises(subprocess.CalledProcessError):
        list(ask(command, [Case("any", ())]))
