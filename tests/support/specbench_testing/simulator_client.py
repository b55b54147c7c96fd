"""The simulator in one of its dialects over plain HTTP, and the structure of its responses."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp.test_utils import TestClient

from specbench_client.simulator import (
    PromptCategories,
    SimulatedEngine,
    SimulatorConfig,
    SimulatorServer,
    TruthFile,
    choose_dialect,
)
from specbench_testing.closing_servers import ClosingTestServer

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
Client = TestClient[Any, Any]


@asynccontextmanager
async def serve_dialect(
    name: str, config: SimulatorConfig, truth: TruthFile | None = None, known: PromptCategories | None = None
) -> AsyncIterator[Client]:
    """A simulator with this dialect."""
    server = SimulatorServer(SimulatedEngine(config, known), choose_dialect(name, config), truth)
    async with TestClient(ClosingTestServer(server.application())) as client:
        yield client


async def post_request(client: Client, body: dict[str, Any], path: str = CHAT) -> tuple[int, Any]:
    """Status and response: the document, or the events of a stream, which must end with [DONE]."""
    async with client.post(path, json=body) as response:
        if response.status != 200 or not body.get("stream"):
            return response.status, await response.json()
        *data, done, rest = (await response.text()).split("\n\n")
        assert (done, rest) == ("data: [DONE]", "")
        return response.status, [json.loads(one.removeprefix("data: ")) for one in data]


async def accepted_response(client: Client, body: dict[str, Any], path: str = CHAT) -> Any:
    """The response to an accepted request."""
    status, found = await post_request(client, body, path)
    assert status == 200, found
    return found


async def get_page(client: Client, path: str) -> Any:
    """A page: its JSON, or its text."""
    async with client.get(path) as response:
        assert response.status == 200
        assert response.headers["X-Specbench-Simulated"] == "true"
        return await (response.json() if response.content_type == "application/json" else response.text())


async def samples(client: Client, path: str = "/metrics") -> dict[str, float]:
    """The samples of a Prometheus page, by name and labels."""
    lines = (await get_page(client, path)).splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def key_structure(value: Any) -> str:
    """The keys of a JSON value in order, with nested ones after their parent: `a b{c} d[e]`."""
    if isinstance(value, dict):
        return " ".join(key + _inside(one) for key, one in value.items())
    return key_structure(value[0]) if isinstance(value, list) and value and isinstance(value[0], dict) else ""


def _inside(value: Any) -> str:
    inner = key_structure(value)
    return "" if not inner else f"[{inner}]" if isinstance(value, list) else f"{{{inner}}}"
