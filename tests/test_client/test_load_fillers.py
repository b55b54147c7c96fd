"""Filler requests keep the load up around the measured conversations and differ from measured prompts."""

from __future__ import annotations

import asyncio

import pytest

from specbench_client.chat import ChatMessage
from specbench_client.load.conversations import FillerPlan, filler_conversation, is_filler
from specbench_client.transport.error_class import ErrorClass
from specbench_client.transport.exchange import HttpRequest, UnparsedExchange
from specbench_client.workload.row_parsing import Prompt
from specbench_testing.conversation_turns import row
from specbench_testing.fake_endpoint import Exchange, FakeEndpoint, rows

FILL = FillerPlan((row("a", "one two three", "more"), row("b", "four five")), streams=3, measured=4)


def test_filler_has_the_same_words_and_a_unique_start() -> None:
    fillers = [filler_conversation(FILL, stream, lap) for lap in range(4) for stream in range(FILL.streams)]
    texts = [filler.prompt.turns[0][0].content for filler in fillers]
    assert texts[:2] == ["0 three two one", "1 five four"]
    assert len({text.split()[0] for text in texts}) == len(texts)


def test_filler_keeps_the_system_prompt_that_all_prompts_share() -> None:
    opening = ChatMessage("system", "be brief\n\nand polite", shared=len("be brief"))
    shared = ChatMessage("system", "be brief", shared=len("be brief"))
    assert [opening.reversed(7).content, opening.reversed().content] == [
        "be brief\n\n7 polite and",
        "be brief\n\npolite and",
    ]
    assert shared.reversed(7).content == "be brief"


def test_filler_has_one_turn_and_an_unused_conversation_number() -> None:
    found = [filler_conversation(FILL, stream, lap) for lap in range(3) for stream in range(3)]
    assert {len(filler.prompt.turns) for filler in found} == {1}
    assert len({one.index for one in found}) == len(found)
    assert min(one.index for one in found) > 1_000_000, "a point has at most 1,000,000 conversations"
    assert all(is_filler(one.prompt.id) for one in found)
    assert not is_filler("p1")


@pytest.mark.parametrize(("prompts", "streams"), [(10, 3), (10, 1), (3, 10), (1, 4)])
async def test_every_measured_conversation_is_steady_for_any_number_of_them(prompts: int, streams: int) -> None:
    endpoint = FakeEndpoint()
    await endpoint.driver.closed(rows(prompts), streams, filled=True)
    phases = {(is_filler(record.prompt_id), record.phase) for record in endpoint.driver.records}
    assert {phase for of_filler, phase in phases if not of_filler} == {"steady"}
    assert {phase for of_filler, phase in phases if of_filler} <= {"ramp", "drain"}
    measured = sorted(record.prompt_id for record in endpoint.driver.records if not is_filler(record.prompt_id))
    assert measured == sorted(f"p{index}" for index in range(prompts))


async def test_no_stream_is_idle_while_a_measured_conversation_is_open() -> None:
    streams = 4
    in_flight: list[str] = []
    seen: list[int] = []

    async def watched(request: HttpRequest, exchange: Exchange) -> UnparsedExchange:
        in_flight.append(request.url)
        await asyncio.sleep(0)
        if not is_filler(request.url):
            seen.append(len(in_flight))
        pending_response = await exchange(request)
        in_flight.remove(request.url)
        return pending_response

    endpoint = FakeEndpoint(watched)
    await endpoint.driver.closed(rows(9), streams, filled=True)
    assert set(seen) == {streams}


async def test_failed_measured_conversations_also_end_the_fillers() -> None:
    endpoint = FakeEndpoint()
    endpoint.failing = dict.fromkeys(range(2, 12), ErrorClass.HTTP_5XX)
    await endpoint.driver.closed(rows(5), 2, filled=True)
    assert sum(not is_filler(record.prompt_id) for record in endpoint.driver.records) == 5


def test_filler_of_token_ids_has_the_same_length_and_another_start() -> None:
    prompt = Prompt("t", None, ((ChatMessage("user", "", (1, 2, 3, 4)),),))
    found = [filler_conversation(FillerPlan((prompt,), 2, 1), 0, lap).prompt.turns[0][0].token_ids for lap in range(2)]
    assert found == [(4, 3, 2, 1), (2, 1, 4, 3)]
