"""The traps of this layout, and the promises of the top level."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {"crds": "specbench_api", "client": "specbench_client", "operator": "specbench_operator"}
_LIST = ["git", "ls-files", "-co", "--exclude-standard"]
TRACKED = subprocess.run(_LIST, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()


def test_no_top_folder_is_a_package_because_operator_would_shadow_pythons_own() -> None:
    assert [folder for folder in FOLDERS if (ROOT / folder / "__init__.py").exists()] == []


def test_no_test_folder_is_a_package_but_support() -> None:
    inits = [path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("__init__.py")]
    assert [str(path) for path in inits if path.parts[0] != "support"] == []


@pytest.mark.parametrize(("folder", "package"), FOLDERS.items())
def test_every_module_says_what_it_is(folder: str, package: str) -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in (ROOT / folder / package).rglob("*.py")
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert silent == []


def test_no_room_is_called_by_a_name_that_says_nothing() -> None:
    empty_words = {"utils", "util", "common", "helpers", "helper", "base", "manager", "mixins", "misc"}
    found = [name for name in TRACKED if empty_words & set(Path(name).with_suffix("").parts)]
    assert found == []


def test_the_wheel_holds_three_packages_and_nothing_else(tmp_path: Path) -> None:
    subprocess.run(
        [
            Path(sys.executable).with_name("uv"),
            "build",
            "--wheel",
            "--no-build-isolation",
            "--out-dir",
            str(tmp_path),
            "--quiet",
            str(ROOT),
        ],
        check=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == set(FOLDERS.values())


def test_each_of_the_given_dependencies_is_imported_where_it_belongs() -> None:
    homes = {
        "kopf": "operator", "kubernetes": "operator", "aiohttp": "client", "pydantic": "crds",
        "datasets": "client", "tiktoken": "client", "pandas": "client", "boto3": "client",
    }  # fmt: skip
    unused = [
        name
        for name, folder in homes.items()
        if not any(
            re.search(rf"^\s*(import|from) {name}\b", path.read_text(encoding="utf-8"), re.MULTILINE)
            for path in (ROOT / folder).rglob("*.py")
        )
    ]
    assert unused == []


def test_every_dependency_has_its_reason() -> None:
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    project = tomllib.loads("\n".join(lines))["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["operator"]
    assert [dep for dep in wanted if not any(f'"{dep}",' in line and "# " in line for line in lines)] == []
