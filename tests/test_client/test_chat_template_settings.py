"""Settings beside a tokenizer.json change the prompt or are rejected; none is ignored.

The results are compared with transformers in test_engines/test_chat_templates.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from specbench_api.spec.chat_template import ChatTemplate
from specbench_api.spec.model import Target
from specbench_client.chat import ChatMessage
from specbench_client.errors import BadInput
from specbench_client.workload.chat_template.loading import load_template
from specbench_client.workload.chat_template.template import AppliedTemplate
from specbench_testing.chat_templates import BESIDE, SETTINGS, folder_beside, tokenizer_folder

pytest.importorskip("tokenizers", reason="the extra tokenizers is not installed")
MESSAGES = (ChatMessage("user", BESIDE),)
BOS, EOS, TOOL = 0, 1, 332


def loaded(folder: Path, **declared: Any) -> AppliedTemplate:
    return load_template(ChatTemplate(applied_by="Client", tokenizer=str(folder), **declared), Target(name="m"), folder)


def ids_of(folder: Path) -> list[int]:
    return list(loaded(folder).with_token_ids(MESSAGES)[-1].token_ids or ())


@pytest.mark.parametrize(("name", "files"), SETTINGS.items())
def test_token_defined_only_by_a_settings_file_is_one_token(
    name: str, files: Mapping[str, Any], tmp_path: Path
) -> None:
    ids = ids_of(folder_beside(tmp_path, files))
    settings_text = json.dumps(files)

    assert ids[0] == (EOS if name == "a map over the settings" else BOS)
    assert ids.count(TOOL) == settings_text.count('"<tool>"')


def test_token_flags_in_the_settings_control_surrounding_spaces(tmp_path: Path) -> None:
    """<bos> strips the space after it, so `over` starts with another token than ` over`."""
    plain = ids_of(tokenizer_folder(tmp_path / "plain", "dated"))
    stripped = ids_of(folder_beside(tmp_path / "other", SETTINGS["a token of other flags"]))
    assert stripped[0] == plain[0]
    assert stripped != plain


def test_complete_tokenizer_file_is_used_unchanged(tmp_path: Path) -> None:
    folder = tokenizer_folder(tmp_path, "dated")
    assert loaded(folder).tokenizer_json == (folder / "tokenizer.json").read_bytes()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"added_tokens_decoder": {"400": {"content": "<tool>"}}}, "disagree about the id of '<tool>'"),
        (
            {"split_special_tokens": True},
            "turns the template's special tokens into plain text: set chatTemplate.appliedBy: Engine",
        ),
        (
            {"bos_token": None, "tokenizer_class": "LlamaTokenizer"},
            (
                "the template uses bos_token, which tokenizer_config.json does not define:"
                " set bos_token in chatTemplate.kwargs"
            ),
        ),
    ],
)
def test_setting_that_would_change_the_prompt_is_rejected(
    settings: Mapping[str, Any], words: str, tmp_path: Path
) -> None:
    folder = folder_beside(tmp_path, {"tokenizer_config.json": settings})
    with pytest.raises(BadInput, match=words):
        loaded(folder)


def test_missing_special_token_can_be_set_or_declared_absent(tmp_path: Path) -> None:
    folder = folder_beside(
        tmp_path, {"tokenizer_config.json": {"bos_token": None, "tokenizer_class": "LlamaTokenizer"}}
    )
    assert loaded(folder, kwargs={"bos_token": ""}).text(MESSAGES).startswith("<|head|>")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"bos_token": None}))
    assert loaded(folder).text(MESSAGES).startswith("<|head|>")
