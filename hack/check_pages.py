#!/usr/bin/env python3
"""Check that pages agree with the code: links, commands, options, specs, lists of names, and the tests they cite.

    hack/check_pages.py    exit 1 and name each page with what is wrong on it

To add a check, write a function that yields a sentence for each problem and add it to CHECKS or PAGE_CHECKS.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import click
import yaml
from jsonschema import Draft7Validator

from specbench_api.api_model import in_words
from specbench_api.campaign.expansion import expand_campaign
from specbench_api.errors import InvalidSpec
from specbench_api.outcome.exit_codes import Exit
from specbench_api.plan.expansion import expand
from specbench_api.spec.campaign_status import CampaignConditionType, CampaignPhase
from specbench_api.spec.conditions import ConditionType, EngineReason, GateReason, GateWait, Phase
from specbench_api.spec.dataset import GENERATED_SOURCES, Source
from specbench_api.spec.parsing import parse_campaign, parse_run
from specbench_client.analysis.decision.request import Prices
from specbench_client.cli import cli
from specbench_client.dataset.speed_bench_texts import RESOLVERS
from specbench_client.documents.recommendation import RecommendationAnswer
from specbench_client.documents.what_if import CostModel
from specbench_client.store.store import StoreErrorReason
from specbench_client.trust.registry import CHECK_BY_NAME
from specbench_operator.run.launches.launch_state import ClientReason

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("docs", "examples", "hack", "helm", "benchmarks")
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])
STEPS = [
    ROOT / "examples/github/action.yml",
    ROOT / "examples/gitlab/specbench.gitlab-ci.yml",
    ROOT / "examples/gitops/.github/workflows/gate.yaml",
]
"""Their scripts contain specbench commands too."""
WORDS_MAX = 40_000
"""Words of all pages of the site that are not generated."""
SECRET_USES = {"bench-s3": "s3", "hub": "hub", "endpoint-key": "endpoint"}
"""Name of a Secret in the documentation → the label of its use."""
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`\n]+`")
_CALL = re.compile(r"(?:^ {4,}|[`$|(] ?|run: |kubectl )specbench ([a-z][a-z-]*)\b([^`\n|]*)", re.MULTILINE)
_CITED_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")

Problems = Iterator[str]


def read(page: Path | str) -> str:
    """Return a file's text, with each continued line joined."""
    return (ROOT / page).read_text(encoding="utf-8").replace("\\\n", " ")


def links(page: Path) -> Problems:
    """Links between pages lead to a file, and to a heading if they name one."""
    text = _CODE.sub("", _FENCED.sub("", read(page)))
    for target in re.findall(r"\]\((?!https?:)([^)]+)", text) + re.findall(r'src="(?!https?:)([^"]+)', text):
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if not file.exists() or (anchor and anchor not in _anchors(file)):
            yield f"the link {target} leads nowhere"


def _anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to a page's headings; a repeated heading has a number appended."""
    anchors: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", _FENCED.sub("", read(page)), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        anchors.add(next(name for n in count() if (name := f"{slug}-{n}" if n else slug) not in anchors))
    return anchors


def commands(page: Path) -> Problems:
    """Commands of specbench and their options exist."""
    context = click.Context(cli)
    for word, rest in _CALL.findall(read(page)):
        command = cli.get_command(context, word)
        inner = rest.strip().partition(" ")[0]
        if isinstance(command, click.Group) and inner and not inner.startswith("-"):
            command = command.get_command(context, inner)
        if command is None:
            yield f"specbench {word}{rest}: there is no such command"
            continue
        options = {option for each in command.params for option in each.opts} | {"--help", "-h"}
        used = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", rest.partition(" #")[0]))
        yield from (f"specbench {word} has no option {option}" for option in sorted(used - options))


def make_targets(page: Path) -> Problems:
    """Targets of make exist."""
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))
    used = set(re.findall(r"(?:^\$ |`)make ([a-z-]+)", read(page), re.MULTILINE))
    yield from (f"make {target} does not exist" for target in sorted(used - targets))


def secret_labels(page: Path) -> Problems:
    """A Secret that a page creates gets the label of its use; without it the fence refuses it."""
    text = read(page)
    for secret in re.findall(r"create secret generic (\S+)", text):
        if f"label secret {secret} specbench.io/use={SECRET_USES[secret]}" not in text:
            yield f"Secret {secret} is created without its label"


def specs(page: Path) -> Problems:
    """YAML is valid: resources of specbench, values of the chart and parts of a run's spec; other YAML parses."""
    for kind, block in _FENCED.findall(read(page)):
        for document in yaml.safe_load_all(block) if kind == "yaml" else ():
            try:
                _validate(document)
            except (InvalidSpec, ValueError) as error:
                yield f"invalid YAML: {error}"


def _validate(document: Any) -> None:
    if not isinstance(document, dict):
        return  # steps of a workflow
    if document.get("kind") == "SpecBenchCampaign":
        expand_campaign(parse_campaign(document))
    elif document.get("kind") == "SpecBenchRun":
        expand(parse_run(document))
    elif "specbench.io/cost-model/v1" in document.values():
        CostModel.model_validate(document)
    elif "fence" in document:
        Draft7Validator(json.loads(read("helm/specbench/values.schema.json"))).validate(document)
    elif "apiVersion" not in document and "include" not in document:
        # Part of a run's spec: the rest comes from an example.
        run = yaml.safe_load(read("examples/local-simulator.yaml"))
        run["spec"] |= document.get("spec", document)
        parse_run(run)


def cited_tests(page: Path) -> Problems:
    """Tests that a page cites as evidence exist."""
    for file, function in sorted(set(_CITED_TEST.findall(read(page)))):
        if not (ROOT / file).exists() or not re.search(rf"^(?:async )?def {function}\(", read(file), re.MULTILINE):
            yield f"{file}::{function} does not exist"


PAGE_CHECKS: tuple[Callable[[Path], Problems], ...] = (
    links, commands, make_targets, secret_labels, specs, cited_tests,
)  # fmt: skip
"""A page → its problems."""


def site() -> Problems:
    """The site's folders are the kinds of Diátaxis, plus research; its handwritten words are limited."""
    pages = [page for page in PAGES if page.is_relative_to(ROOT / "docs")]
    kinds = {"tutorials", "how-to", "concepts", "reference", "research", "index.md"}
    yield from sorted(f"docs/{kind} is no kind of page" for kind in {_kind(page) for page in pages} - kinds)
    written = [re.sub(r"<!-- \w+: generated.+?<!-- end", "", read(page), flags=re.DOTALL) for page in pages]
    words = sum(len(text.split()) for text in written if "Generated by `hack/generate`" not in text)
    if words > WORDS_MAX:
        yield f"docs: {words:,} words, more than {WORDS_MAX:,}"


def _kind(page: Path) -> str:
    return page.relative_to(ROOT / "docs").parts[0]


def lists() -> Problems:
    """Pages that list all values of something list each of them."""
    expected = {
        "docs/reference/exit-codes.md": [f"| {code.value} | `{code.name}` |" for code in Exit],
        "docs/how-to/decide.md": [
            *(f"| `{in_words(answer)}` |" for answer in RecommendationAnswer),
            *(str(field.alias) for field in Prices.model_fields.values()),
        ],
        "docs/reference/workloads.md": [
            f"`source: {source}`" if source in GENERATED_SOURCES else f"`{source}`" for source in Source
        ],
        "docs/how-to/prepare-prompts.md": [
            *(f"| {resolver.name} |" for resolver in RESOLVERS),
            *(resolver.revision[:8] for resolver in RESOLVERS if resolver.revision),
        ],
        "docs/reference/conditions.md": [
            *(f"| `{kind}` |" for kind in (*ConditionType, *CampaignConditionType)),
            *(f"`{reason}`" for reason in (*Phase, *CampaignPhase, *EngineReason, *ClientReason, *StoreErrorReason)),
            *(f"`{reason}`" for reason in (*GateReason, *GateWait, *sorted(operator_reasons()))),
        ],
        "benchmarks/trust.md": [f" | {check} | " for check in CHECK_BY_NAME],
    }
    for page, texts in expected.items():
        yield from (f"{page}: {text} is missing" for text in texts if text not in read(page))


REASON_ARGUMENT = {
    "RunState": 1, "CampaignState": 1, "KubernetesEvent": 1, "flip_event": 0,
    "StoreFailure": 0, "Retry": 0, "Stop": 0, "Changed": 0,
    "NotFound": 0, "yes": 0, "no": 0, "unknown": 0,
}  # fmt: skip
"""Functions and classes of the operator that take a reason, and the index of that argument."""


def operator_reasons() -> set[str]:
    """Return every reason of a condition or event that is a string literal in the operator's source."""
    reasons: set[str] = set()
    for file in (ROOT / "operator/specbench_operator").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id=name), args=arguments) if name in REASON_ARGUMENT:
                    given = [node for argument in arguments[REASON_ARGUMENT[name] :][:1] for node in ast.walk(argument)]
                    reasons |= {
                        each.value for each in given if isinstance(each, ast.Constant) and isinstance(each.value, str)
                    }
                case ast.Tuple(elts=[ast.Name(id=name), ast.Constant(value=str(word))]) if name in REASON_ARGUMENT:
                    reasons.add(word)  # errors that are mapped to an HTTP status
    if missed := {"NameTaken", "SecretMissing", "WaitingForRelease", "EngineQueued", "Resumed"} - reasons:
        raise AssertionError(f"the search misses known reasons: {missed}")
    return reasons


def guarantees() -> Problems:
    """Every guarantee of SECURITY.md cites the test that fails when it breaks."""
    (section,) = re.findall(r"^## Guarantees\n(.*?)(?=^## )", read("SECURITY.md"), re.MULTILINE | re.DOTALL)
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    yield from (f"SECURITY.md: no test is cited: {row}" for row in rows if not _CITED_TEST.search(row))


def injected_faults() -> Problems:
    """Each row of benchmarks/trust.md names a world with its fault, or a test that injects it; each world has one."""
    sys.path.append(str(ROOT / "benchmarks"))
    worlds = importlib.import_module("virtual_time.corrupted_worlds").CORRUPTED_WORLDS
    table = read("benchmarks/trust.md").partition("## Injected faults")[2]
    rows = [line.strip("|").split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    tests = " ".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests/test_client").glob("test_*.py"))
    named = {injected.strip().removeprefix("virtual "): check.strip() for _, check, injected in rows}
    yield from (f"benchmarks/trust.md: no row for the world {name}" for name in worlds.keys() - named.keys())
    for name, check in named.items():
        world = worlds.get(name)
        if f"def {name}(" not in tests and (world is None or check not in world.checks):
            yield f"benchmarks/trust.md: {name} is no test and no world with the fault of {check}"


def dataset_commands() -> Problems:
    """Every command of `specbench dataset` is shown, with arguments that parse (files need not exist)."""
    group = cli.get_command(click.Context(cli), "dataset")
    assert isinstance(group, click.Group)
    lines = re.findall(r"^\$ specbench dataset (.+)$", read("docs/how-to/prepare-prompts.md"), re.MULTILINE)
    missing = set(group.list_commands(click.Context(group))) - {line.split()[0] for line in lines}
    yield from (f"docs/how-to/prepare-prompts.md: dataset {command} is not shown" for command in sorted(missing))
    for line in lines:
        step, *arguments = shlex.split(line)
        command = group.get_command(click.Context(group), step)
        assert command is not None
        for parameter in command.params:
            if isinstance(parameter.type, click.Path):
                parameter.type.exists = False
        try:
            command.make_context(step, arguments)
        except click.UsageError as error:
            yield f"docs/how-to/prepare-prompts.md: {line}: {error}"


CHECKS = (site, lists, guarantees, injected_faults, dataset_commands)
"""Checks of more than one page, or of a certain one."""


def main() -> int:
    """Print every problem; return the exit code."""
    problems = [
        *(f"{page.relative_to(ROOT)}: {each}" for page in PAGES for check in PAGE_CHECKS for each in check(page)),
        *(f"{step.relative_to(ROOT)}: {each}" for step in STEPS for each in commands(step)),
        *(each for check in CHECKS for each in check()),
    ]
    sys.stderr.writelines(f"{problem}\n" for problem in problems)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
