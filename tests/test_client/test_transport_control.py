"""Control requests: waiting for health with a deadline, and error messages."""

from __future__ import annotations

import re

import pytest

from specbench_client.errors import EngineFailed
from specbench_client.transport.control_client import ControlClient, ControlError
from specbench_testing.scripted_server import ScriptAction, response, serve_scripts, unused_url

OK = [response(200, b'{"status": "ok"}')]
STARTING = [response(503, b'{"error": {"message": "Loading model"}}')]


async def test_wait_healthy_returns_when_the_engine_becomes_healthy() -> None:
    async with serve_scripts(STARTING, [], STARTING, OK) as (url, server), ControlClient(url) as control:
        await control.wait_healthy("/health", deadline_s=30)
    assert len(server.requests) == 4


async def test_wait_healthy_fails_with_the_engines_last_message() -> None:
    async with serve_scripts(STARTING) as (url, _), ControlClient(url) as control:
        with pytest.raises(EngineFailed, match="Loading model") as caught:
            await control.wait_healthy("/health", deadline_s=0)
    assert caught.value.reason == "NeverReady"


async def test_missing_health_page_is_distinguished_from_a_starting_engine() -> None:
    async with serve_scripts([response(404, b"not here")], STARTING) as (url, _), ControlClient(url) as control:
        for message in ("it answers, but has no /ready: try another", "Loading model$"):
            with pytest.raises(EngineFailed, match=message):
                await control.wait_healthy("/ready", deadline_s=0, if_absent="try another")


async def test_closed_port_is_reported_with_the_next_step() -> None:
    url = unused_url()
    async with ControlClient(url) as control:
        with pytest.raises(EngineFailed, match=re.escape(f"start the engine, or correct the address ({url})")):
            await control.wait_healthy("/health", deadline_s=0)


async def test_healthy_returns_true_or_false() -> None:
    async with serve_scripts(OK, STARTING, [ScriptAction.RESET]) as (url, _), ControlClient(url) as control:
        assert [await control.healthy("/health") for _ in range(3)] == [True, False, False]
    async with ControlClient(unused_url()) as control:
        assert not await control.healthy("/health")


async def test_hanging_engine_is_not_healthy() -> None:
    async with serve_scripts([ScriptAction.STALL]) as (url, _), ControlClient(url, timeout_s=0.05) as control:
        assert not await control.healthy("/health")


async def test_missing_page_raises_with_its_path_and_message() -> None:
    async with serve_scripts([response(404, b"not here")]) as (url, _), ControlClient(url) as control:
        with pytest.raises(ControlError, match="/metrics: HTTP 404: not here"):
            await control.text("/metrics")


async def test_unavailable_documents_are_none() -> None:
    async with (
        serve_scripts(OK, [response(404, b"")], [response(200, b"no json")]) as (url, _),
        ControlClient(url) as control,
    ):
        assert await control.documents(["/a", "/b", "/c"]) == {"/a": {"status": "ok"}, "/b": None, "/c": None}
