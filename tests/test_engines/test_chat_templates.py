"""What the client makes of a conversation is what transformers makes of it, token by token."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from specbench_api.spec.chat_template import TEMPLATE_DATE, ChatTemplate
from specbench_api.spec.model import Target
from specbench_client.chat import ChatMessage
from specbench_client.workload.chat_template.loading import load_template
from specbench_testing.chat_templates import (
    BESIDE,
    CONVERSATIONS,
    SETTINGS,
    Conversation,
    folder_beside,
    said,
    tokenizer_folder,
)

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


def message(told: dict[str, Any]) -> ChatMessage:
    further = {name: value for name, value in told.items() if name not in ("role", "reasoning_content")}
    return ChatMessage(
        told["role"],
        told["content"] or "",
        reasoning=told.get("reasoning_content", ""),
        further=json.dumps(further) if told.keys() - {"role", "content", "reasoning_content"} else "",
    )


@pytest.fixture(scope="module")
def theirs(engine_python: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, dict[str, Any]]]:
    """By the conversation's name, the folder of its tokenizer and what transformers makes of it."""
    folder = tmp_path_factory.mktemp("templates")
    folders = {name: tokenizer_folder(folder / one.shape, one.shape) for name, one in CONVERSATIONS.items()}
    rows = [
        {"folder": str(folders[name]), "messages": one.messages, "kwargs": dict(one.kwargs)}
        for name, one in CONVERSATIONS.items()
    ]
    made = by_transformers(engine_python, rows)
    return {name: (folders[name], one) for name, one in zip(CONVERSATIONS, made, strict=True)}


def by_transformers(engine_python: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    made = subprocess.run(
        [engine_python, str(Path(__file__).with_name("templates_by_transformers.py"))],
        input=json.dumps({"day": TEMPLATE_DATE.isoformat(), "rows": rows}),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found: list[dict[str, Any]] = json.loads(made.stdout)
    return found


@pytest.mark.parametrize(("name", "conversation"), CONVERSATIONS.items())
def test_the_client_renders_as_transformers_does(
    name: str, conversation: Conversation, theirs: dict[str, tuple[Path, dict[str, Any]]]
) -> None:
    folder, expected = theirs[name]
    declared = ChatTemplate(applied_by="Client", tokenizer=str(folder), kwargs=dict(conversation.kwargs))
    template = load_template(declared, Target(name="tiny"), folder)
    messages = tuple(message(one) for one in conversation.messages)

    assert template.text(messages) == expected["text"]
    assert list(template.with_token_ids(messages)[-1].token_ids or ()) == expected["ids"]


def test_what_stands_beside_a_tokenizer_counts_as_transformers_counts_it(engine_python: str, tmp_path: Path) -> None:
    folders = [folder_beside(tmp_path / str(number), files) for number, files in enumerate(SETTINGS.values())]
    rows = [{"folder": str(folder), "messages": said(BESIDE), "kwargs": {}} for folder in folders]
    ours = []
    for folder in folders:
        template = load_template(ChatTemplate(applied_by="Client", tokenizer=str(folder)), Target(name="tiny"), folder)
        asked = (ChatMessage("user", BESIDE),)
        ours.append({"text": template.text(asked), "ids": list(template.with_token_ids(asked)[-1].token_ids or ())})

    assert dict(zip(SETTINGS, ours, strict=True)) == dict(
        zip(SETTINGS, by_transformers(engine_python, rows), strict=True)
    )
