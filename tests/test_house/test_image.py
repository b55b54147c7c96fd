"""The Dockerfile's targets and their pinned requirements, which include those of the client at the same versions."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest

from audit_report import AuditedFile, summarize
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


def release_check() -> str:
    """The shell command of the Dockerfile that refuses a release from a base image that may move."""
    found = re.search(r'^RUN (case "\$RELEASE:\$BASE_IMAGE" in .*?esac)$', DOCKERFILE, flags=re.MULTILINE | re.DOTALL)
    assert found
    return found[1].replace("\\\n", "\n")


@pytest.mark.parametrize(
    ("release", "base_image", "message"),
    [
        ("false", "python:3.11-slim-bookworm", ""),
        ("true", "python:3.11-slim-bookworm@sha256:0123", ""),
        ("true", "python:3.11-slim-bookworm", "is a tag, which may move: a release needs NAME@sha256:DIGEST"),
        ("yes", "python:3.11-slim-bookworm", "RELEASE is yes: write true or false"),
    ],
)
def test_a_release_is_only_built_from_a_base_image_with_a_digest(release: str, base_image: str, message: str) -> None:
    environment = {"RELEASE": release, "BASE_IMAGE": base_image}
    done = subprocess.run(
        ["/bin/sh", "-c", release_check()], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) == (not message)
    assert message in done.stderr


def sbom_command() -> list[str]:
    """The arguments with which every build stage makes the bill of materials."""
    commands = re.findall(r"/opt/sbom/bin/cyclonedx-py (.*?) -o \S+ \\\n\s+\S+$", DOCKERFILE, flags=re.MULTILINE)
    stages = len(re.findall(r"^FROM build|^FROM \${BASE_IMAGE} AS build$", DOCKERFILE, flags=re.MULTILINE))
    assert len(commands) == stages == 3
    assert len(set(commands)) == 1
    return str(commands[0]).split()


@pytest.mark.process
def test_the_bill_of_materials_lists_the_image_s_requirements_with_their_versions(tmp_path: Path) -> None:
    target = tmp_path / "sbom.cdx.json"
    tool = Path(sys.executable).with_name("cyclonedx-py")
    subprocess.run([tool, *sbom_command(), "-o", target, sys.executable], check=True, capture_output=True)
    document = json.loads(target.read_text())
    assert document["bomFormat"] == "CycloneDX"
    listed = {each["name"].lower().replace("_", "-"): each["version"] for each in document["components"]}
    installed = {each.name.lower().replace("_", "-"): each.version for each in distributions()}
    required = {name: installed[name] for name in pinned(FIRST) if name in installed}  # some are for other platforms
    assert len(required) > 50
    assert {name: listed.get(name) for name in required} == required


def test_the_tool_of_the_bill_of_materials_is_not_in_the_image() -> None:
    assert "cyclonedx-bom" in pinned("sbom")
    assert "cyclonedx-bom" not in pinned(FIRST)
    assert pinned("sbom")["cyclonedx-bom"] == pinned("dev")["cyclonedx-bom"]


VULNERABLE = {"name": "a", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}
SOUND = {"name": "b", "version": "1", "vulns": []}
UNKNOWN = {"name": "c", "skip_reason": "Dependency not found"}


@pytest.mark.parametrize(
    ("dependencies", "code", "line"),
    [
        ([SOUND, VULNERABLE], 1, "requirements/x.txt: a 1: CVE-1: fixed in 2"),
        ([SOUND, UNKNOWN], 0, "requirements/x.txt: 1 packages audited, 1 unknown to the index, 0 vulnerable"),
        ([UNKNOWN], 0, "audit skipped: requirements/x.txt: the package index does not answer about vulnerabilities"),
        (None, 0, "audit skipped: requirements/x.txt: pip-audit could not run: ['offline']"),
    ],
)
def test_an_audit_fails_for_vulnerabilities_and_reports_what_it_skipped(
    dependencies: list[dict[str, object]] | None, code: int, line: str
) -> None:
    found, lines = summarize([AuditedFile("x", dependencies, "offline")])
    assert found == code
    assert line in lines
