"""An engine as a local process, and its prerequisites on this machine.

The engine is killed when the client dies, even by SIGKILL (PR_SET_PDEATHSIG), because a forgotten engine would disturb
the next measurement on this machine. Its output goes to a file, whose end is quoted in errors.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import importlib.util
import os
import shutil
import signal
import socket
import sys
from pathlib import Path
from typing import Self

from specbench_api.launch.arguments import variable_problem
from specbench_api.launch.launcher import HEALTH_PATH, LaunchSpec, with_config_folder
from specbench_api.plan.expansion import planned_launches
from specbench_api.plan.plan import Plan
from specbench_api.spec.conditions import EngineReason
from specbench_client.errors import BadInput, EngineFailed
from specbench_client.known_secrets import without_secrets
from specbench_client.optional_dependencies import install_hint
from specbench_client.transport.control_client import ControlClient

POLL_S = 0.05
HEALTH_TIMEOUT_S = 5.0
STOP_GRACE_S = 5.0
DEATH_GRACE_S = 1.0
LOG_TAIL_BYTES = 1500
_PR_SET_PDEATHSIG = 1


class EngineProcess:
    """An engine on this machine. `async with` starts and stops it; `url` is its address."""

    def __init__(self, launch: LaunchSpec, base_dir: Path, log_path: Path) -> None:
        self._launch = launch
        self._base_dir = base_dir
        self._log_path = log_path
        self._port = _free_port()
        self._process: asyncio.subprocess.Process | None = None
        self.command: list[str] = []
        """The command that was started; empty before the start."""
        self.url = f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        """Start the engine, without waiting until it is ready."""
        command = self.command = local_command(self._with_configs(), self._port)
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        with self._log_path.open("ab") as log:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *command,
                    cwd=self._base_dir,
                    env={**os.environ, **self._launch.env},
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    preexec_fn=_die_with_parent,
                )
            except (OSError, ValueError) as error:  # ValueError: an argument contains a null character.
                remedy = "check spec.engine.command, args and env"
                raise BadInput(f"spec.engine: {command[0]} cannot be started: {error}: {remedy}") from error
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop the engine: SIGTERM, then SIGKILL to its process group."""
        process = self._process
        if process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):  # SIGKILL in any case: children may outlive the engine.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), STOP_GRACE_S)

    async def wait_ready(self, deadline_s: float) -> None:
        """Wait for the engine's health route. Raises EngineFailed if it exits or is not ready in time."""
        loop = asyncio.get_running_loop()
        end = loop.time() + deadline_s
        async with ControlClient(self.url, HEALTH_TIMEOUT_S) as control:
            while loop.time() < end:
                if self.failure():
                    raise self._failed()
                if await control.healthy(HEALTH_PATH):
                    return
                await asyncio.sleep(POLL_S)
        message = f"the engine was not ready within {deadline_s:g} s; the end of its log: {log_tail(self._log_path)}"
        raise EngineFailed(message, EngineReason.NEVER_READY)

    def failure(self) -> EngineReason | None:
        """Return why the process has exited without being stopped, or None while it runs."""
        code = self._process.returncode if self._process else None
        if code is None:
            return None
        return EngineReason.OOM_KILLED if code == -signal.SIGKILL else EngineReason.CRASHED

    async def explain(self) -> EngineFailed | None:
        """Wait briefly, and return the error if the process has exited without being stopped, or None."""
        if self._process is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._process.wait()), DEATH_GRACE_S)
        return self._failed() if self.failure() else None

    def _with_configs(self) -> LaunchSpec:
        """Write the configuration files next to the log, where they document the start."""
        if not self._launch.configs:
            return self._launch
        folder = self._log_path.with_suffix(".config").resolve()  # The engine has another working directory.
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in self._launch.configs.items():
            (folder / name).write_text(text, encoding="utf-8")
        return with_config_folder(self._launch, str(folder))

    def _failed(self) -> EngineFailed:
        code = self._process.returncode if self._process else None
        reason = self.failure() or EngineReason.CRASHED
        how = (
            "was killed (SIGKILL: most often the kernel's out-of-memory killer)" if code == -9 else f"ended with {code}"
        )
        return EngineFailed(f"the engine {how}; the end of its log: {log_tail(self._log_path)}", reason)


def log_tail(path: Path) -> str:
    """Return the end of a log without secrets, or that there is none."""
    try:
        data = path.read_bytes()[-LOG_TAIL_BYTES:]
    except OSError as error:
        return f"(no log: {error})"
    return without_secrets(data.decode(errors="replace")).strip() or "(the log is empty)"


def local_command(launch: LaunchSpec, port: int) -> list[str]:
    """Return program and arguments of a launch on this machine. Raises BadInput if no program is found."""
    return _command(_find_program(launch), launch, port)


def planned_command(launch: LaunchSpec) -> list[str]:
    """Like `local_command`, but with the name of a program that is not installed here."""
    try:
        return local_command(launch, launch.port)
    except BadInput:
        return _command(_candidates(launch)[0], launch, launch.port)


def _command(program: tuple[str, ...], launch: LaunchSpec, port: int) -> list[str]:
    network = ("--host", "127.0.0.1", "--port", str(port))
    return [*program, *map(_expand_home, launch.args), *network]


def _candidates(launch: LaunchSpec) -> tuple[tuple[str, ...], ...]:
    return (launch.command,) if launch.command else launch.local_programs


def _expand_home(argument: str) -> str:
    return str(Path(argument).expanduser()) if argument.startswith("~/") else argument


def _find_program(launch: LaunchSpec) -> tuple[str, ...]:
    candidates = _candidates(launch)
    for candidate in candidates:
        if candidate[0] == "python":
            return (sys.executable, *candidate[1:])
        found = shutil.which(candidate[0]) or shutil.which(candidate[0], path=Path(sys.executable).parent)
        if found:
            return (found, *candidate[1:])
    names = " or ".join(candidate[0] for candidate in candidates)
    raise BadInput(f"spec.engine: no program {names} on PATH: install it, or set spec.engine.command")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _die_with_parent() -> None:
    with contextlib.suppress(OSError):  # Not Linux: `__aexit__` still kills the process group.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


# The prerequisites of a launch are checked before anything starts, because a missing file would otherwise end the
# engine minutes into a run. With `spec.engine.command`, it is unknown where the program looks for its files, so nothing
# is checked.

_WHEEL_SERVER = "specbench_client.local.llama_server"
_LLAMA_WHEEL = "xllamacpp"
RESEARCH_RUNTIME = "specbench_client.research"
_TORCH_PACKAGES = ("torch", "transformers")
_SGLANG_SERVER = "sglang.launch_server"
_SGLANG_PACKAGE = "sglang"


def missing_for_engines(plan: Plan, base_dir: Path) -> list[str]:
    """Return one line for whatever prevents the plan's engines from running, or from being reached, on this machine.

    Also for each variable of this process that an engine of its kind may not inherit.
    """
    engine, in_cluster = plan.engine, "KUBERNETES_SERVICE_HOST" in os.environ
    lines = [line for launch in planned_launches(plan).values() for line in _missing_prerequisites(launch, base_dir)]
    variables = (variable_problem(engine.kind, name, "environment of specbench") for name in sorted(os.environ))
    services = [
        f"spec.engine.endpoints[{row}]: a Service ({endpoint.address}) has an address only in its cluster: give"
        " instead a url that this machine can reach"
        for row, endpoint in enumerate(engine.endpoints or [])
        if f".{plan.namespace}.svc:" in endpoint.address and not in_cluster
    ]
    return [*dict.fromkeys(lines), *map(str, filter(None, variables)), *services]


def _missing_prerequisites(launch: LaunchSpec, base_dir: Path) -> list[str]:
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
    if _WHEEL_SERVER in command:
        missing += [
            f"{field}: the prebuilt llama.cpp server cannot download models from a hub ({name}):"
            f" set {'spec.model.path' if field == 'spec.model.name' else field} to a GGUF file, or put llama.cpp's own"
            " llama-server on PATH"
            for field, name in launch.hub.items()
        ]
        if importlib.util.find_spec(_LLAMA_WHEEL) is None:
            missing.append(f"spec.engine: no llama-server is on PATH: install one, or {install_hint('llama-cpp')}")
    lacking = [
        name for name in _TORCH_PACKAGES if RESEARCH_RUNTIME in command and importlib.util.find_spec(name) is None
    ]
    if lacking:
        missing.append(f"spec.engine: {' and '.join(lacking)} are an extra: {install_hint('transformers')}")
    if _SGLANG_SERVER in command and importlib.util.find_spec(_SGLANG_PACKAGE) is None:
        missing.append(
            f"spec.engine: sglang is not installed for {command[0]}: install it there, or give the Python that has"
            f" it: spec.engine.command: [PYTHON, -m, {_SGLANG_SERVER}]"
        )
    return missing


def _missing_file(field: str, path: str, base_dir: Path) -> str | None:
    if field == "spec.model.pvc":
        return f"{field}: a volume claim exists only on a cluster: set spec.model.path to run on this machine"
    full_path = base_dir / Path(path).expanduser()
    return None if full_path.exists() else f"{field}: {full_path} does not exist: give the model's path on this machine"
