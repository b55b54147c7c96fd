"""All pages together: what they link to is there, and the commands, options, targets and specs that they show exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from specbench_api.campaign.expand import expand_campaign
from specbench_api.outcome.cost_model import CostModel
from specbench_api.plan.expand import expand
from specbench_api.spec.reading import parse_campaign, parse_run
from specbench_client.cli import cli
from specbench_testing.resources import run_of

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (".", "docs", "examples", "hack", "helm", "benchmarks")
PAGES = sorted({page for folder in FOLDERS for page in (ROOT / folder).glob("*.md" if folder == "." else "**/*.md")})
WORKFLOW = ROOT / "examples/gitops/.github/workflows/gate.yaml"
"""Its steps are commands too."""
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`\n]+`")
_CALL = re.compile(r"(?:^ {4,}|[`$|(] ?|run: |kubectl )specbench ([a-z]+)\b([^`\n|]*)", re.MULTILINE)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8").replace("\\\n", " ")


def anchors(page: Path) -> set[str]:
    """What GitHub calls the headings of a page: a heading that comes again has a number behind it."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", _FENCED.sub("", read(page)), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.add(next(each for n in count() if (each := f"{slug}-{n}" if n else slug) not in found))
    return found


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_everything_that_a_page_links_to_is_there(page: Path) -> None:
    text = _CODE.sub("", _FENCED.sub("", read(page)))
    targets = re.findall(r"\]\((?!https?:)([^)]+)", text) + re.findall(r'src="(?!https?:)([^"]+)', text)
    for target in targets:
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent == ROOT / "docs"], ids=name)
def test_every_page_of_the_documents_is_found_from_the_readme(page: Path) -> None:
    assert f"]({name(page)})" in read(ROOT / "README.md")


@pytest.mark.parametrize("page", [*PAGES, WORKFLOW], ids=name)
def test_every_command_and_every_option_of_specbench_that_a_page_shows_exists(page: Path) -> None:
    context = click.Context(cli)
    for word, rest in _CALL.findall(read(page)):
        command = cli.get_command(context, word)
        inner = rest.strip().partition(" ")[0]
        if isinstance(command, click.Group) and inner and not inner.startswith("-"):
            command = command.get_command(context, inner)
        assert command is not None, f"{word}{rest}"
        known = {option for each in command.params for option in each.opts} | {"--help", "-h"}
        asked = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", rest.partition(" #")[0]))
        assert asked <= known, f"{word}{rest}"


def test_the_search_finds_commands() -> None:
    text = "$ specbench gate A --baseline B\n`specbench plan FILE` and kubectl specbench report\n| specbench plan -`"
    assert [word for word, _ in _CALL.findall(text)] == ["gate", "plan", "report", "plan"]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_make_target_that_a_page_shows_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"(?:^\$ |`)make ([a-z-]+)", read(page), re.MULTILINE)) <= targets


def shown() -> Iterator[Any]:
    """Every document of a YAML block, each with its page."""
    for page in PAGES:
        blocks = [block for kind, block in _FENCED.findall(read(page)) if kind == "yaml"]
        documents = [document for block in blocks for document in yaml.safe_load_all(block)]
        yield from (pytest.param(each, id=f"{name(page)}-{number}") for number, each in enumerate(documents))


@pytest.mark.parametrize("document", shown())
def test_what_a_page_shows_of_a_spec_is_valid(document: Any) -> None:
    """Whole resources of ours, and parts of a run's spec. What is others' is YAML, and no more is asked of it here."""
    if not isinstance(document, dict):
        return  # steps of a workflow
    if document.get("kind") == "SpecBenchCampaign":
        assert expand_campaign(parse_campaign(document)).runs
    elif document.get("kind") == "SpecBenchRun":
        assert expand(parse_run(document)).points
    elif "specbench.io/cost-model/v1" in document.values():
        assert CostModel.model_validate(document).drafters
    elif "apiVersion" not in document and "include" not in document:
        part = document.get("spec", document)
        assert expand(run_of({f"spec.{field}": value for field, value in part.items()})).points
