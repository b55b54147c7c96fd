"""Requests beside the measurement: they wait for health with a deadline, and say what they saw."""

from __future__ import annotations

import re

import pytest

from specbench_client.errors import EngineFailed
from specbench_client.transport.control_client import ControlClient, ControlError
from specbench_testing.scripted_server import ScriptAction, response, serve_scripts, unused_url

OK = [response(200, b'{"status": "ok"}')]
STARTING = [response(503, b'{"error": {"message": "Loading model"}}')]


async def test_an_engine_that_becomes_healthy_is_waited_for() -> None:
    async with serve_scripts(STARTING, [], STARTING, OK) as (url, heard), ControlClient(url) as control:
        await control.wait_healthy("/health", deadline_s=30)
    assert len(heard.requests) == 4


async def test_an_engine_that_never_becomes_healthy_is_named_with_its_last_words() -> None:
    async with serve_scripts(STARTING) as (url, _), ControlClient(url) as control:
        with pytest.raises(EngineFailed, match="Loading model") as caught:
            await control.wait_healthy("/health", deadline_s=0)
    assert caught.value.reason == "NeverReady"


async def test_an_engine_that_answers_without_the_page_is_told_apart_from_one_that_starts() -> None:
    async with serve_scripts([response(404, b"not here")], STARTING) as (url, _), ControlClient(url) as control:
        for told in ("it answers, but has no /ready: try another", "Loading model$"):
            with pytest.raises(EngineFailed, match=told):
                await control.wait_healthy("/ready", deadline_s=0, if_absent="try another")


async def test_where_nothing_listens_the_next_step_is_told() -> None:
    url = unused_url()
    async with ControlClient(url) as control:
        with pytest.raises(EngineFailed, match=re.escape(f"start the engine, or correct the address ({url})")):
            await control.wait_healthy("/health", deadline_s=0)


async def test_health_is_a_yes_or_a_no() -> None:
    async with serve_scripts(OK, STARTING, [ScriptAction.RESET]) as (url, _), ControlClient(url) as control:
        assert [await control.healthy("/health") for _ in range(3)] == [True, False, False]
    async with ControlClient(unused_url()) as control:
        assert not await control.healthy("/health")


async def test_an_engine_that_hangs_is_not_healthy() -> None:
    async with serve_scripts([ScriptAction.STALL]) as (url, _), ControlClient(url, timeout_s=0.05) as control:
        assert not await control.healthy("/health")


async def test_a_page_that_is_not_there_raises_with_the_address_and_the_words() -> None:
    async with serve_scripts([response(404, b"not here")]) as (url, _), ControlClient(url) as control:
        with pytest.raises(ControlError, match="/metrics: HTTP 404: not here"):
            await control.text("/metrics")


async def test_documents_are_missing_where_they_are_not_to_be_had() -> None:
    async with (
        serve_scripts(OK, [response(404, b"")], [response(200, b"no json")]) as (url, _),
        ControlClient(url) as control,
    ):
        assert await control.documents(["/a", "/b", "/c"]) == {"/a": {"status": "ok"}, "/b": None, "/c": None}
