"""What a launch needs of this machine beside its program: model files, and a program that can get the others.

Looked at before anything starts, because a file that is missing would otherwise show as an engine that ended, minutes
into a run. Where the user gave a program of his own (`spec.engine.command`) nobody knows where that looks for its
files, and nothing is said.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from specbench_api.launch.launch import Launch
from specbench_client.errors import BadInput
from specbench_client.extras import remedy
from specbench_client.local.process import local_command

WHEEL_SERVER = "specbench_client.local.llama_server"
WHEEL = "xllamacpp"
RESEARCH_RUNTIME = "specbench_client.research"
TORCH = ("torch", "transformers")
SGLANG_SERVER = "sglang.launch_server"
SGLANG = "sglang"


def lacks(launch: Launch, base_dir: Path) -> list[str]:
    """What is missing, a line each: the field of the spec, the path that was tried, and what to do."""
    try:
        command = local_command(launch, port=0)
    except BadInput as error:
        return [str(error)]
    if launch.worker_args is not None:
        return ["spec.placement.nodes: an engine on several nodes needs a cluster: set it to 1 to run on this machine"]
    if launch.command:
        return []
    found = [line for field, path in launch.files.items() if (line := _missing(field, path, base_dir))]
    if WHEEL_SERVER in command:
        found += [
            f"{field}: the prebuilt llama.cpp server fetches nothing from a hub ({name}):"
            f" set {_path_field(field)} to a GGUF file, or put llama.cpp's own llama-server on PATH"
            for field, name in launch.hub.items()
        ]
        if importlib.util.find_spec(WHEEL) is None:
            found.append(f"spec.engine: no llama-server is on PATH: install one, or {remedy('llama-cpp')}")
    lacking = [name for name in TORCH if RESEARCH_RUNTIME in command and importlib.util.find_spec(name) is None]
    if lacking:
        found.append(f"spec.engine: {' and '.join(lacking)} are an extra: {remedy('transformers')}")
    if SGLANG_SERVER in command and importlib.util.find_spec(SGLANG) is None:
        found.append(
            f"spec.engine: sglang is not installed beside {command[0]}: install it there, or give the Python that has"
            f" it: spec.engine.command: [PYTHON, -m, {SGLANG_SERVER}]"
        )
    return found


def _missing(field: str, path: str, base_dir: Path) -> str | None:
    if field == "spec.model.pvc":
        return f"{field}: a volume claim is a cluster's: set spec.model.path to run on this machine"
    tried = base_dir / Path(path).expanduser()
    return None if tried.exists() else f"{field}: {tried} is not there: give the model's path on this machine"


def _path_field(field: str) -> str:
    return "spec.model.path" if field == "spec.model.name" else field
