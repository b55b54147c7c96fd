"""Fillers hold the load around the measured conversations, and are like nothing that is measured."""

from __future__ import annotations

import asyncio

import pytest

from specbench_client.chat import ChatMessage
from specbench_client.load.conversations import FillerPlan, filler_conversation, is_filler
from specbench_client.transport.exchange import ErrorClass, HttpRequest, UnparsedExchange
from specbench_testing.conversation_turns import Row, row
from specbench_testing.fake_endpoint import FakeEndpoint, rows

FILL = FillerPlan((row("a", "one two three", "more"), row("b", "four five")), streams=3, measured=4)


def test_a_filler_is_as_long_in_the_same_words_and_begins_like_no_other() -> None:
    texts = [
        filler_conversation(FILL, stream, lap).turns[0][0].content for lap in range(4) for stream in range(FILL.streams)
    ]
    assert texts[:2] == ["0 three two one", "1 five four"]
    assert len({text.split()[0] for text in texts}) == len(texts)


def test_a_filler_has_one_turn_and_a_number_that_no_conversation_has() -> None:
    found = [filler_conversation(FILL, stream, lap) for lap in range(3) for stream in range(3)]
    assert {len(one.turns) for one in found} == {1}
    assert len({one.index for one in found}) == len(found)
    assert min(one.index for one in found) > 1_000_000, "the most conversations that a point may have"
    assert all(is_filler(one.prompt_id) for one in found)
    assert not is_filler("p1")


@pytest.mark.parametrize(("prompts", "streams"), [(10, 3), (10, 1), (3, 10), (1, 4)])
async def test_every_measured_conversation_is_steady_however_few_there_are(prompts: int, streams: int) -> None:
    desk = FakeEndpoint()
    await desk.driver.closed(rows(prompts), streams, filled=True)
    phases = {(is_filler(record.prompt_id), record.phase) for record in desk.driver.records}
    assert {phase for of_filler, phase in phases if not of_filler} == {"steady"}
    assert {phase for of_filler, phase in phases if of_filler} <= {"ramp", "drain"}
    measured = sorted(record.prompt_id for record in desk.driver.records if not is_filler(record.prompt_id))
    assert measured == sorted(f"p{index}" for index in range(prompts))


async def test_no_stream_is_idle_while_a_measured_conversation_is_open() -> None:
    desk, streams = FakeEndpoint(), 4
    open_now: list[str] = []
    seen: list[int] = []
    exchange = desk.exchange

    async def watched(request: HttpRequest) -> UnparsedExchange:
        open_now.append(request.url)
        await asyncio.sleep(0)
        if not is_filler(request.url):
            seen.append(len(open_now))
        unread = await exchange(request)
        open_now.remove(request.url)
        return unread

    desk.exchange = watched  # type: ignore[method-assign]
    await desk.driver.closed(rows(9), streams, filled=True)
    assert set(seen) == {streams}


async def test_a_measured_conversation_that_fails_ends_the_fillers_as_another_does() -> None:
    desk = FakeEndpoint()
    desk.failing = dict.fromkeys(range(2, 12), ErrorClass.HTTP_5XX)
    await desk.driver.closed(rows(5), 2, filled=True)
    assert sum(not is_filler(record.prompt_id) for record in desk.driver.records) == 5


def test_a_filler_of_token_ids_is_as_long_and_begins_elsewhere_each_time() -> None:
    prompt = Row("t", None, ((ChatMessage("user", "", (1, 2, 3, 4)),),))
    found = [filler_conversation(FillerPlan((prompt,), 2, 1), 0, lap).turns[0][0].token_ids for lap in range(2)]
    assert found == [(4, 3, 2, 1), (2, 1, 4, 3)]
