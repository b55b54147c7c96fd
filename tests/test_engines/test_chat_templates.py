"""The client applies chat templates exactly as transformers does, token by token."""

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
    chat,
    folder_beside,
    tokenizer_folder,
)

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


def message(fields: dict[str, Any]) -> ChatMessage:
    further = {name: value for name, value in fields.items() if name not in ("role", "reasoning_content")}
    return ChatMessage(
        fields["role"],
        fields["content"] or "",
        reasoning=fields.get("reasoning_content", ""),
        further=json.dumps(further) if fields.keys() - {"role", "content", "reasoning_content"} else "",
    )


@pytest.fixture(scope="module")
def transformers_results(
    engine_python: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Path, dict[str, Any]]]:
    """By the conversation's name: the folder of its tokenizer, and the text and ids from transformers."""
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
def test_the_client_renders_templates_as_transformers_does(
    name: str, conversation: Conversation, transformers_results: dict[str, tuple[Path, dict[str, Any]]]
) -> None:
    folder, expected = transformers_results[name]
    declared = ChatTemplate(applied_by="Client", tokenizer=str(folder), kwargs=dict(conversation.kwargs))
    template = load_template(declared, Target(name="tiny"), folder)
    messages = tuple(message(one) for one in conversation.messages)

    assert template.text(messages) == expected["text"]
    assert list(template.with_token_ids(messages)[-1].token_ids or ()) == expected["ids"]


def test_tokenizer_settings_files_have_the_same_effect_as_in_transformers(engine_python: str, tmp_path: Path) -> None:
    folders = [folder_beside(tmp_path / str(number), files) for number, files in enumerate(SETTINGS.values())]
    rows = [{"folder": str(folder), "messages": chat(BESIDE), "kwargs": {}} for folder in folders]
    client_results = []
    for folder in folders:
        template = load_template(ChatTemplate(applied_by="Client", tokenizer=str(folder)), Target(name="tiny"), folder)
        messages = (ChatMessage("user", BESIDE),)
        client_results.append(
            {"text": template.text(messages), "ids": list(template.with_token_ids(messages)[-1].token_ids or ())}
        )

    assert dict(zip(SETTINGS, client_results, strict=True)) == dict(
        zip(SETTINGS, by_transformers(engine_python, rows), strict=True)
    )
