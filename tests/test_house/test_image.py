"""The Dockerfile's targets and their pinned requirements, which include those of the client at the same versions."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from generators.requirements import EXTRAS, FIRST
from specbench_client.optional_dependencies import IMAGE_TARGETS

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
TARGETS = {FIRST: "specbench", **IMAGE_TARGETS}
"""Extra → Dockerfile target that contains it. The operator's image is also the client's."""
FILES = {FIRST: FIRST, "llama-cpp": "llama-cpp", "transformers": "research", "tokenizers": FIRST}
"""Extra → requirements file of its target."""


def pinned(file: str) -> dict[str, str]:
    """Package → version, for packages without an environment marker."""
    text = (ROOT / "requirements" / f"{file}.txt").read_text()
    return dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", text, flags=re.MULTILINE))


def direct_dependencies(extra: str) -> set[str]:
    """The project's dependencies and those of the extra, from pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    rows = project["optional-dependencies"][extra] + project["dependencies"]
    return {re.split(r"[^A-Za-z0-9._-]", row)[0].lower() for row in rows}


@pytest.mark.parametrize("extra", TARGETS)
def test_every_target_installs_the_requirements_of_its_extra(extra: str) -> None:
    assert re.search(rf"^FROM run AS {TARGETS[extra]}$", DOCKERFILE, flags=re.MULTILINE)
    assert f"requirements/{FILES[extra]}.txt" in DOCKERFILE
    assert extra in EXTRAS[FILES[extra]]


@pytest.mark.parametrize("extra", TARGETS)
def test_requirements_of_a_target_contain_the_clients_versions_and_the_extra(extra: str) -> None:
    installed, clients = pinned(FILES[extra]), pinned(FIRST)
    assert {name: installed.get(name) for name in clients} == clients
    assert direct_dependencies(extra) <= set(installed)


@pytest.mark.parametrize("file", [*EXTRAS, "build"])
def test_every_package_is_pinned_by_its_hash(file: str) -> None:
    text = (ROOT / "requirements" / f"{file}.txt").read_text()
    packages = re.split(r"\n(?=[a-z0-9])", text)
    assert [one.splitlines()[0] for one in packages if "==" in one and "--hash=sha256:" not in one] == []


def test_the_default_target_is_the_operators_image() -> None:
    assert re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE, flags=re.MULTILINE)[-1] == "specbench"
