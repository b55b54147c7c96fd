"""The layout of the repository: packages, module names, the wheel, and dependencies."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "specbench_api": "crds", "specbench_client": "client", "specbench": "client", "specbench_operator": "operator",
}  # fmt: skip
_LIST = ["git", "ls-files", "-co", "--exclude-standard"]
TRACKED = subprocess.run(_LIST, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()


def test_a_script_without_its_libraries_names_make_install() -> None:
    command = [sys.executable, "-S", "hack/model-check"]  # -S: without installed packages
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    expected = r"hack/model-check: \w+ is missing: run `make install`, then \.venv/bin/python hack/model-check\n"
    assert (done.returncode, re.fullmatch(expected, done.stderr) is not None) == (1, True), done.stderr


def test_no_module_or_folder_has_a_vague_name() -> None:
    vague_names = {"utils", "util", "common", "helpers", "helper", "base", "manager", "mixins", "misc"}
    found = [name for name in TRACKED if vague_names & set(Path(name).with_suffix("").parts)]
    assert found == []


@pytest.mark.process
def test_the_wheel_contains_exactly_our_packages(tmp_path: Path) -> None:
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
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == set(PACKAGES)


def test_every_dependency_has_a_comment_with_its_reason() -> None:
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    project = tomllib.loads("\n".join(lines))["project"]
    dependencies = project["dependencies"] + project["optional-dependencies"]["operator"]
    assert [dep for dep in dependencies if not any(f'"{dep}",' in line and "# " in line for line in lines)] == []
