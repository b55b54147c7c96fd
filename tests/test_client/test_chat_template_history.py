"""What stands in the history of a conversation: what was said, rendered anew for every turn."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from specbench_api.spec.chat_template import ChatTemplate
from specbench_api.spec.target import Target
from specbench_client.chat import ChatMessage
from specbench_client.cooperative import CooperativeTask
from specbench_client.drive.engine_connection import common_template
from specbench_client.load.request import Turn
from specbench_client.load.request_record import TurnResult
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


class Counted(AppliedTemplate):
    """A template whose token ids are the lengths of the words. Records the threads that render."""

    threads = set[int]()

    def with_token_ids(self, messages: tuple[ChatMessage, ...]) -> tuple[ChatMessage, ...]:
        self.threads.add(threading.get_ident())
        ids = tuple(len(word) for message in messages for word in message.content.split())
        return (*messages[:-1], replace(messages[-1], token_ids=ids))

    def split_answer(self, messages: object, text: str) -> object:  # type: ignore[override]
        from specbench_client.workload.chat_template.reasoning import split_channels

        return split_channels(text)


WORDS = Counted(b"", "", "{}", date(2026, 1, 1), (), "words")


async def test_a_thought_stands_in_no_history_of_messages() -> None:
    desk = ReasoningEndpoint()
    await desk.driver.closed([row("p0", "one", "two")], 1)
    second = max(desk.taken, key=lambda turn: turn.turn)
    assert [(message.role, message.content) for message in second.messages] == [
        ("user", "one"),
        ("assistant", "re: p0#0"),
        ("user", "two"),
    ]
    assert second.messages[1].reasoning == "hm"


async def test_a_history_is_rendered_anew_and_beside_the_loop() -> None:
    desk = ReasoningEndpoint()
    desk.driver.template = WORDS
    await desk.driver.closed([row("p0", "one", "two twoo")], 1)
    second = max(desk.prepared, key=lambda turn: turn.turn)
    assert second.messages[-1].token_ids == (3, 3, 4, 3, 4), "one re: p0#0 two twoo"
    assert threading.get_ident() not in WORDS.threads


async def test_fillers_are_rendered_too() -> None:
    desk = FakeEndpoint()
    desk.driver.template = WORDS
    await desk.driver.closed([row("p0", "one two")], 2, filled=True)
    fillers = [turn for turn in desk.prepared if turn.prompt_id.startswith("filler-")]
    assert fillers
    assert all(turn.messages[-1].token_ids for turn in fillers)
    assert {turn.messages[-1].content for turn in fillers} >= {"0 two one", "1 two one"}


@pytest.fixture
def template(tmp_path: Path) -> AppliedTemplate:
    tokenizer = tokenizer_folder(tmp_path, "harmony")
    return load_template(ChatTemplate(applied_by="Client", tokenizer=str(tokenizer)), Target(name="m"), tmp_path)


def test_a_request_holds_ids_and_asks_for_the_markers(template: AppliedTemplate) -> None:
    """Whoever prepares it, rendered before or not."""
    asked = (ChatMessage("user", "hi"),)
    for messages in (asked, template.with_token_ids(asked)):
        turn = Turn(0, "p#0", "p", None, 0, messages, 0, 0, "steady")
        request = context(CannedTransport(), template=template).build_request(turn)
        body = json.loads(request.body)
        assert request.url.endswith("/v1/completions")
        assert body["prompt"] == list(template.with_token_ids(asked)[-1].token_ids or ())
        assert body["skip_special_tokens"] is False


async def test_channels_become_the_fields_that_the_template_asks_for(template: AppliedTemplate) -> None:
    class Harmonious(FakeEndpoint):
        def read_result(self, turn: Turn, unread: UnparsedExchange) -> CooperativeTask[TurnResult]:
            result = yield from super().read_result(turn, unread)
            said = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Two."
            return replace(result, reply_text=said)

    desk = Harmonious()
    desk.driver.template = template
    await desk.driver.closed([row("p0", "one", "two")], 1)
    second = max(desk.taken, key=lambda turn: turn.turn)
    text = template.text(second.messages)
    assert "<|start|>assistant<|channel|>final<|message|>Two.<|end|>" in text
    assert "analysis" not in text


def test_an_engine_is_first_asked_as_all_of_its_workloads_ask() -> None:
    assert common_template({}) is None
    assert common_template({"a": WORDS, "b": WORDS}) is WORDS
    assert common_template({"a": WORDS, "b": None}) is None
