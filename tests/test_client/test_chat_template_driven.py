"""Groups driven with a client-side chat template: ids, digests in the manifest, and the history of conversations.

Ids are in the request and counted by the engine. Earlier answers are included and rendered again for every turn.
"""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from specbench_api.outcome.layout import manifest_key
from specbench_api.plan.plan import Plan
from specbench_api.spec.chat_template import ChatTemplate
from specbench_api.spec.engine import DialectName, Endpoint, Engine, EngineKind
from specbench_api.spec.model import Target
from specbench_client.chat import ChatMessage
from specbench_client.cooperative_tasks import CooperativeTask
from specbench_client.documents.manifest import Manifest
from specbench_client.drive.group import drive_group
from specbench_client.drive.options import ClientOptions, DriveOptions
from specbench_client.drive.prompts import load_workload_prompts
from specbench_client.errors import BadInput
from specbench_client.load.conversations import Conversation
from specbench_client.load.turns import Turn, TurnResult
from specbench_client.store.folder import FolderStore
from specbench_client.transport.exchange import UnparsedExchange
from specbench_client.workload.chat_template.loading import load_template
from specbench_client.workload.chat_template.template import AppliedTemplate
from specbench_client.workload.row_parsing import Prompt
from specbench_testing.agent_traces import otlp, span, user
from specbench_testing.chat_templates import CALLED, OFFERED, tokenizer_folder
from specbench_testing.conversation_turns import CannedTransport, context, row
from specbench_testing.fake_endpoint import FakeEndpoint
from specbench_testing.simulated_groups import plan_of, records_of, simulator, write_prompts

THINKING = {"enable_thinking": False}


def plan_with(folder: Path, edits: dict[str, Any] | None = None, *, turns: int = 2, shape: str = "thinking") -> Plan:
    tokenizer = tokenizer_folder(folder / "tokenizer", shape)
    declared = {"appliedBy": "Client", "tokenizer": str(tokenizer), "kwargs": THINKING}
    folder.mkdir(exist_ok=True)
    prompts = write_prompts(folder / "p.jsonl", count=3, turns=turns)
    return plan_of(prompts, {"spec.workloads[0].chatTemplate": declared} | (edits or {}))


def template_of(plan: Plan) -> AppliedTemplate:
    declared = plan.workloads[0].client_template
    assert declared is not None
    return load_template(declared, plan.target, Path())


async def drive(plan: Plan, group: int, folder: Path) -> FolderStore:
    store = FolderStore(folder / "results")
    options = DriveOptions(attempt=f"{group}-a", client=ClientOptions(keep_text=True))
    async with simulator(folder / f"truth-{group}.jsonl") as engine:
        await drive_group(plan, plan.groups[group], engine.url, store, options)
    return store


@pytest.mark.process
async def test_engine_counts_the_token_ids_the_client_rendered(tmp_path: Path) -> None:
    plan = plan_with(tmp_path)
    store = await drive(plan, 0, tmp_path)

    template = template_of(plan)
    records = records_of(plan, store, [plan.groups[0].points[0].hash])
    rows = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    turns_by_prompt = {row["id"]: row["turns"] for row in rows}
    found: list[dict[str, Any]] = records.to_dict("records")  # type: ignore[assignment]
    output_texts = {(one["conversation_id"], one["turn"]): one["output_text"] for one in found}
    measured = [one for one in found if one["prompt_id"] in turns_by_prompt]
    for one in measured:
        turns, history = turns_by_prompt[one["prompt_id"]], list[ChatMessage]()
        for number in range(one["turn"]):
            history += [
                ChatMessage("user", turns[number]),
                ChatMessage("assistant", output_texts[one["conversation_id"], number]),
            ]
        ids = template.with_token_ids((*history, ChatMessage("user", turns[one["turn"]])))[-1].token_ids
        assert one["input_tokens"] == len(ids or ())
    assert len(measured) == 6
    others = [one["input_tokens"] for one in found if one["prompt_id"] not in turns_by_prompt]
    assert min(others) > 15, "warm-up and filler prompts are rendered too"

    manifest = Manifest.from_json(store.get(manifest_key(plan.groups[0].points[0].hash)) or b"")
    assert manifest.observed.chat_template_sha256 == template.template_sha256
    assert manifest.observed.tokenizer_sha256 == template.tokenizer_sha256


def test_rendered_prompts_keep_the_fingerprint_of_the_dataset(tmp_path: Path) -> None:
    plan = plan_with(tmp_path)
    template = plan.workloads[0].model_copy(update={"chat_template": None})
    plain = plan.model_copy(update={"workloads": [template]})
    (rendered,), (as_read,) = (load_workload_prompts(one, ["chat"], tmp_path).values() for one in (plan, plain))
    assert rendered.prompts.fingerprint == as_read.prompts.fingerprint
    assert rendered.prompts.rows != as_read.prompts.rows
    assert as_read.tokens is None
    assert rendered.tokens is not None
    assert set(rendered.tokens) == {row.id for row in as_read.prompts.rows}


def test_second_turns_are_rejected_if_the_endpoint_drops_reasoning_markers(tmp_path: Path) -> None:
    engine = Engine(
        kind=EngineKind.EXTERNAL,
        endpoints=[Endpoint(name="endpoint", url="http://127.0.0.1:1")],
        dialect=DialectName.OPENAI,
    )
    one, two = (
        plan_with(tmp_path / str(turns), turns=turns, shape="harmony").model_copy(update={"engine": engine})
        for turns in (1, 2)
    )
    assert load_workload_prompts(one, ["chat"], tmp_path)
    with pytest.raises(BadInput, match=r"workload 'chat': the model marks its reasoning with special tokens \(<\|m"):
        load_workload_prompts(two, ["chat"], tmp_path)


def test_requests_of_a_session_at_once_need_declared_slots(tmp_path: Path) -> None:
    spans = [span("t", 0.0, 9.0, [user("a")]), span("t", 1.0, 2.0, [user("b")]), span("t", 3.0, 4.0, [user("c")])]
    plan = plan_with(tmp_path, {"spec.workloads[0].dataset.source": "agent-traces"})
    (tmp_path / "p.jsonl").write_text(json.dumps(otlp(*spans)))
    with pytest.raises(BadInput, match=r"'t' has up to 2 requests in flight at once.* set load.slots, to 4 if none"):
        load_workload_prompts(plan, ["chat"], tmp_path)
    plan = plan.model_copy(update={"load": plan.load.model_copy(update={"slots": 2})})
    (loaded,) = load_workload_prompts(plan, ["chat"], tmp_path).values()
    assert loaded.prompts.turns == 3


def test_prompts_with_tools_need_a_client_side_template(tmp_path: Path) -> None:
    plan = plan_with(tmp_path, shape="tooled")
    rows = [{"id": f"q{n}", "messages": CALLED, "tools": OFFERED} for n in range(3)]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (rendered,) = load_workload_prompts(plan, ["chat"], tmp_path).values()
    assert rendered.tokens is not None
    assert min(rendered.tokens.values()) > 40, "rendered prompts contain the tools"

    plain = plan.workloads[0].model_copy(update={"chat_template": None})
    with pytest.raises(BadInput, match=r"3 of 3 rows cannot be sent(.|\n)*appliedBy: Client to send those with tools"):
        load_workload_prompts(plan.model_copy(update={"workloads": [plain]}), ["chat"], tmp_path)


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
    second = max(endpoint.taken, key=lambda turn: turn.number)
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
    second = max(endpoint.prepared, key=lambda turn: turn.number)
    assert second.messages[-1].token_ids == (3, 3, 4, 3, 4), "one re: p0#0 two twoo"
    assert threading.get_ident() not in WORDS.threads


async def test_filler_prompts_are_rendered() -> None:
    endpoint = FakeEndpoint()
    endpoint.driver.template = WORDS
    await endpoint.driver.closed([row("p0", "one two")], 2, filled=True)
    fillers = [turn for turn in endpoint.prepared if turn.conversation.prompt.id.startswith("filler-")]
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
        turn = Turn(Conversation(0, "p#0", Prompt("p", None, (messages,))), 0, messages)
        request = context(CannedTransport(), template=template).build_request(turn)
        body = json.loads(request.body)
        assert request.url.endswith("/v1/completions")
        assert body["prompt"] == list(template.with_token_ids(plain_messages)[-1].token_ids or ())
        assert body["skip_special_tokens"] is False
