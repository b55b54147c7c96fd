"""Known values of a client's secrets, searched for in all that its processes leave behind, with a real S3 server."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pytest
from aiohttp import web

from specbench_api.outcome.layout import run_root
from specbench_api.plan.plan import Plan
from specbench_client.simulator.config import SimulatorConfig
from specbench_client.simulator.engine import SimulatedEngine
from specbench_client.simulator.server import SimulatorServer, TruthFile, choose_dialect
from specbench_testing.closing_servers import ClosingTestServer
from specbench_testing.s3 import S3Server
from specbench_testing.secret_search import find_secrets
from specbench_testing.simulated_groups import plan_of, write_prompts

pytestmark = pytest.mark.process

SECRETS = {
    "AWS_ACCESS_KEY_ID": "AKIAQ4ZT7LM2XV5RN8WB",
    "AWS_SECRET_ACCESS_KEY": "t7Qm/Vx2Lr9+KdPz4WnB8sYc1HgJ5fUaE3oTiR6M",
    "AWS_SESSION_TOKEN": "FwoGZXIvYXdzEJr//////////wEaDNq2Vb8/Xk+3pLmSCtWyUo==",
    "HF_TOKEN": "hf_" + "kN4vTq8LxR2mZ7bWcY5dJ1sGhP3fUaE9",
    "OPENAI_API_KEY": "words that have no form of a secret at all",
}
SESSION = "AWS_SESSION_TOKEN"
ECHO = "; ".join(
    form(value)
    for name, value in SECRETS.items()
    if name != SESSION
    for form in (
        str,
        lambda text: json.dumps(text).replace("/", "\\/"),
        quote,
        partial(quote, safe=""),
        lambda text: text.encode().hex(),
        lambda text: base64.b64encode(text.encode()).decode(),
        lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    )
)
"""The values as programs print them."""
FAILS_FROM = 6
"""The request for a completion from which on the engine fails."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class EchoingEngine:
    """A simulated engine that also repeats the client's secrets: in headers, identity, counters and errors."""

    echoes: bool
    headers: set[str] = field(default_factory=set)
    """All headers that it received: a client gives its engine no secret."""
    client: asyncio.subprocess.Process | None = None
    command_lines: set[bytes] = field(default_factory=set)
    """Of the client and its workers, seen while they measured."""
    completions: int = 0

    @web.middleware
    async def answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer as the simulator does, until the engine begins to fail."""
        self.headers |= {f"{name}: {value}" for name, value in request.headers.items()}
        if request.method == "POST":
            self.completions += 1
            if self.client:
                self.command_lines |= set(command_lines_of(self.client.pid))
        if not self.echoes:
            return await handler(request)
        headers = {"server": ECHO, "x-request-id": ECHO, "www-authenticate": f"Bearer {ECHO}"}
        if request.method == "POST" and self.completions >= FAILS_FROM:
            return self._failure(headers)
        if request.path == "/v1/models":
            page = {"data": [{"id": "simulated", "root": ECHO, "owned_by": ECHO, "max_model_len": 4096}]}
            return web.json_response(page, headers=headers)
        if request.path in ("/version", "/server_info"):
            return web.json_response({"version": ECHO, "vllm_config": ECHO}, headers=headers)
        return await handler(request)

    def _failure(self, headers: dict[str, str]) -> web.Response:
        kinds = [
            web.json_response({"error": {"message": f"CUDA error: {ECHO}"}}, status=500, headers=headers),
            web.Response(text=f"401 {ECHO}", status=401, headers=headers),
            web.Response(status=307, headers={**headers, "location": f"http://me:{SECRETS['HF_TOKEN']}@x/{ECHO}"}),
            web.Response(text=f"data: {{{ECHO}\n\n", content_type="text/event-stream", headers=headers),
            web.Response(
                text="data: " + json.dumps({"error": {"message": ECHO, "code": 500}}) + "\n\n",
                content_type="text/event-stream",
                headers=headers,
            ),
        ]
        return kinds[self.completions % len(kinds)]


def command_lines_of(pid: int) -> Iterator[bytes]:
    """The command lines of a process and its descendants."""
    try:
        yield Path(f"/proc/{pid}/cmdline").read_bytes()
        children = [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except OSError:
        return  # it has ended
    for child in children:
        yield from command_lines_of(child)


@asynccontextmanager
async def served(engine: EchoingEngine, folder: Path) -> AsyncIterator[str]:
    config = SimulatorConfig(time_scale=0)
    simulated = SimulatorServer(
        SimulatedEngine(config), choose_dialect("vllm", config), TruthFile(folder / "truth.jsonl")
    )
    application = simulated.application()
    application.middlewares.append(engine.answer)
    server = ClosingTestServer(application, host="127.0.0.1")
    await server.start_server()
    try:
        yield str(server.make_url("")).rstrip("/")
    finally:
        await server.close()


@dataclass(frozen=True)
class ClientProcesses:
    """Starts `specbench-client` with the secrets in its environment; `texts` collects what the processes print."""

    plan: Plan
    folder: Path
    server: S3Server
    with_session: bool = False
    """Whether the keys have a session token; the S3 server rejects them then."""
    texts: dict[str, bytes] = field(default_factory=dict)

    async def run(self, command: str, *arguments: str, engine: EchoingEngine | None = None) -> int:
        """Run one command to its end; returns its exit code."""
        (self.folder / "plan.json").write_text(self.plan.to_json())
        (self.folder / "tmp").mkdir(exist_ok=True)
        secrets = {key: value for key, value in SECRETS.items() if key != SESSION or self.with_session}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "specbench_client.job", command, "--plan", str(self.folder / "plan.json"),
            "--results", f"s3://{self.server.access.bucket}/values", *arguments,
            "--termination-log", str(self.folder / f"{command}-ended"),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **self.server.access.environment(), **secrets, "TMPDIR": str(self.folder / "tmp")},
        )  # fmt: skip
        if engine:
            engine.client = process
        async with asyncio.timeout(120):
            out, log = await process.communicate()
        sys.stderr.write(log.decode())
        self.texts.update({f"stdout of {command}": out, f"log of {command}": log})
        return process.returncode if process.returncode is not None else -1

    def everything(self, engine: EchoingEngine) -> dict[str, bytes]:
        """All texts: logs, command lines, termination messages, plan, temporary files, and all objects in S3."""
        files = {
            str(file.relative_to(self.folder)): file.read_bytes() for file in self.folder.rglob("*") if file.is_file()
        }
        seen = {"command lines": b"\n".join(engine.command_lines), "headers": repr(engine.headers).encode()}
        return {**self.texts, **files, **seen}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    folder = tmp_path / "s3"
    folder.mkdir()
    server = S3Server(folder, key=SECRETS["AWS_ACCESS_KEY_ID"], secret=SECRETS["AWS_SECRET_ACCESS_KEY"])
    server.start()
    try:
        yield server
    finally:
        server.stop()


async def run_client(client: ClientProcesses, engine: EchoingEngine) -> tuple[int, dict[str, bytes]]:
    """Measure the group and write the report; returns the exit code of the measurement and all texts."""
    async with served(engine, client.folder) as url:
        group = ("--group", "0", "--attempt", "0", "--endpoint", url)
        code = await client.run("drive", *group, engine=engine)
    await client.run("report")
    return code, client.everything(engine)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return plan_of(write_prompts(tmp_path / "prompts.jsonl", count=12), {"spec.drafters": []})


@pytest.mark.s3
@pytest.mark.parametrize("echoes", [False, True], ids=["successful", "failing"])
async def test_a_measurement_contains_no_secret(echoes: bool, plan: Plan, server: S3Server, tmp_path: Path) -> None:
    client, engine = ClientProcesses(plan, tmp_path, server), EchoingEngine(echoes)
    code, texts = await run_client(client, engine)
    assert code == (4 if echoes else 0)
    stored = [name for name in texts if run_root(plan.namespace, plan.name, plan.uid) in name]
    endings = {"summary.json", "report.html", "results.csv", "provenance.json"}
    endings |= set() if echoes else {".parquet", "/manifest.json"}
    assert endings <= {ending for ending in endings if any(name.endswith(ending) for name in stored)}, stored
    assert b"specbench_client.job" in texts["command lines"]
    assert f"points/{plan.points[0].hash}".encode() in texts["log of drive"], "a point can be found in the log"
    assert (b"[redacted];" in texts["log of drive"]) == echoes, "the engine's own message must be reported"
    assert find_secrets(SECRETS, texts) == []


@pytest.mark.s3
async def test_refused_keys_are_in_no_message(plan: Plan, server: S3Server, tmp_path: Path) -> None:
    client, engine = ClientProcesses(plan, tmp_path, server, with_session=True), EchoingEngine(echoes=False)
    code, texts = await run_client(client, engine)
    assert (code, b"InvalidToken" in texts["log of drive"]) == (5, True)
    assert find_secrets(SECRETS, texts) == []
