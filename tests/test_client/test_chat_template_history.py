"""Conversation history: earlier answers are included and rendered again for every turn."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from specbench_api.spec.chat_template import ChatTemplate
from specbench_api.spec.model import Target
from specbench_client.chat import ChatMessage
from specbench_client.drive.engine_connection import common_template
from specbench_client.load.request import Turn
from specbench_client.load.request_record import TurnResult
from specbench_client.sliced_tasks import CooperativeTask
from specbench_client.transport.exchange import UnparsedExchange
from specbench_client.workload.chat_template.loading import load_template
from specbench_client.workload.chat_template.template import AppliedTemplate
from specbench_testing.chat_templates import tokenizer_folder
from specbench_testing.conversation_turns import CannedTransport, context, row
from specbench_testing.fake_endpoint import FakeEndpoint


class ReasoningEndpoint(FakeEndpoint):
    """Answers every request with reasoning before the final text."""

    def read_result(self, turn: Turn, unread: UnparsedExchange) -> CooperativeTask[TurnResult]:
        result = yield from super().read_result(turn, unread)
        return replace(result, reply_text=f"<think>\nhm\n</think>\n\n{result.reply_text}")


class WordLengthTemplate(AppliedTemplate):
    """A template whose token ids are the lengths of the words. Records the threads that render."""

    threads = set[int]()

    def with_token_ids(self, messages: tuple[ChatMessage, ...]) -> tuple[ChatMessage, ...]:
        self.threads.add(threading.get_ident())
        ids = tuple(len(word) for message in messages for word in message.content.split())
        return (*messages[:-1], replace(messages[-1], token_ids=ids))

    def split_answer(self, messages: object, text: str) -> object:  # type: ignore[override]
        from specbench_client.workload.chat_template.reasoning import split_channels

        return split_channels(text)


WORDS = WordLengthTemplate(b"", "", "{}", date(2026, 1, 1), (), "words")


async def test_reasoning_is_not_part_of_the_history_content() -> None:
    endpoint = ReasoningEndpoint()
    await endpoint.driver.closed([row("p0", "one", "two")], 1)
    second = max(endpoint.taken, key=lambda turn: turn.turn)
    assert [(message.role, message.content) for message in second.messages] == [
        ("user", "one"),
        ("assistant", "re: p0#0"),
        ("user", "two"),
    ]
    assert second.messages[1].reasoning == "hm"


async def test_history_is_rendered_for_each_turn_off_the_event_loop() -> None:
    endpoint = ReasoningEndpoint()
    endpoint.driver.template = WORDS
    await endpoint.driver.closed([row("p0", "one", "two twoo")], 1)
    second = max(endpoint.prepared, key=lambda turn: turn.turn)
    assert second.messages[-1].token_ids == (3, 3, 4, 3, 4), "one re: p0#0 two twoo"
    assert threading.get_ident() not in WORDS.threads


async def test_filler_prompts_are_rendered() -> None:
    endpoint = FakeEndpoint()
    endpoint.driver.template = WORDS
    await endpoint.driver.closed([row("p0", "one two")], 2, filled=True)
    fillers = [turn for turn in endpoint.prepared if turn.prompt_id.startswith("filler-")]
    assert fillers
    assert all(turn.messages[-1].token_ids for turn in fillers)
    assert {turn.messages[-1].content for turn in fillers} >= {"0 two one", "1 two one"}


@pytest.fixture
def template(tmp_path: Path) -> AppliedTemplate:
    tokenizer = tokenizer_folder(tmp_path, "harmony")
    return load_template(ChatTemplate(applied_by="Client", tokenizer=str(tokenizer)), Target(name="m"), tmp_path)


def test_request_has_token_ids_and_keeps_special_tokens(template: AppliedTemplate) -> None:
    """Holds whether or not the messages were rendered before."""
    plain_messages = (ChatMessage("user", "hi"),)
    for messages in (plain_messages, template.with_token_ids(plain_messages)):
        turn = Turn(0, "p#0", "p", None, 0, messages, 0, 0, "steady")
        request = context(CannedTransport(), template=template).build_request(turn)
        body = json.loads(request.body)
        assert request.url.endswith("/v1/completions")
        assert body["prompt"] == list(template.with_token_ids(plain_messages)[-1].token_ids or ())
        assert body["skip_special_tokens"] is False


def test_engine_has_a_common_template_only_if_all_workloads_share_it() -> None:
    assert common_template({}) is None
    assert common_template({"a": WORDS, "b": WORDS}) is WORDS
    assert common_template({"a": WORDS, "b": None}) is None
