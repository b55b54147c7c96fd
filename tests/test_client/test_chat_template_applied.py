"""Chat templates applied by the client: messages become token ids, identical for every engine."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specbench_api.spec.chat_template import ChatTemplate
from specbench_api.spec.model import Target
from specbench_client.chat import ChatMessage
from specbench_client.errors import BadInput
from specbench_client.workload.chat_template.loading import load_template
from specbench_client.workload.chat_template.reasoning import SplitAnswer
from specbench_client.workload.chat_template.template import ANSWER_PLACEHOLDER, AppliedTemplate, render_prompts
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.row_parsing import Prompt, parse_prompt
from specbench_testing.chat_templates import CALLED, OFFERED, tokenizer_folder

tokenizers = pytest.importorskip("tokenizers", reason="the extra tokenizers is not installed")
MODEL = Target(name="tiny")


def template_of(folder: Path, shape: str, **declared: Any) -> AppliedTemplate:
    tokenizer = tokenizer_folder(folder, shape)
    return load_template(ChatTemplate(applied_by="Client", tokenizer=str(tokenizer), **declared), MODEL, folder)


def decoded(folder: Path, ids: Sequence[int] | None) -> str:
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    return str(tokenizer.decode(list(ids or ()), skip_special_tokens=False))


def user_turn(*texts: str) -> tuple[ChatMessage, ...]:
    return tuple(ChatMessage("user", text) for text in texts)


def test_special_tokens_are_parsed_and_the_bos_token_is_not_doubled(tmp_path: Path) -> None:
    template = template_of(tmp_path, "dated")
    messages = template.with_token_ids(user_turn("hi"))
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    by_itself = tokenizer.encode("hi").ids
    assert by_itself[0] == tokenizer.token_to_id("<bos>"), "the tokenizer adds a BOS token by default"

    ids = messages[-1].token_ids
    assert ids is not None
    assert list(ids).count(tokenizer.token_to_id("<bos>")) == 1
    assert ids[0] == tokenizer.token_to_id("<bos>")
    assert ids[1] == tokenizer.token_to_id("<|head|>")
    assert len(ids) > 4, "the tokenizer's saved truncation does not apply to prompts"
    assert decoded(tmp_path, ids) == template.text(user_turn("hi"))
    assert messages[-1].content == "hi"
    assert template.with_token_ids(messages) is messages, "rendered messages are returned unchanged"


def test_template_date_is_the_specs(tmp_path: Path) -> None:
    assert "Today: 01 Jan 2026" in template_of(tmp_path, "dated").text(user_turn("hi"))
    assert "Today: 02 Mar 2027" in template_of(tmp_path, "dated", date="2027-03-02").text(user_turn("hi"))


def test_spec_variables_override_special_tokens(tmp_path: Path) -> None:
    assert template_of(tmp_path, "dated", kwargs={"bos_token": "<eos>"}).text(user_turn("hi")).startswith("<eos>")
    assert template_of(tmp_path, "thinking").text(user_turn("hi")).endswith("<think>\n")
    without_thinking = template_of(tmp_path, "thinking", kwargs={"enable_thinking": False})
    assert without_thinking.text(user_turn("hi")).endswith("</think>\n\n")


def test_reasoning_is_rendered_only_if_the_template_supports_it(tmp_path: Path) -> None:
    history = (*user_turn("a"), ChatMessage("assistant", "b", reasoning="hm"))
    assert "<|channel|>analysis<|message|>hm<|end|>" in template_of(tmp_path / "h", "harmony").text(history)
    assert "hm" not in template_of(tmp_path / "c", "chatml").text(history)


def test_answer_is_split_according_to_its_prompt(tmp_path: Path) -> None:
    thinking = template_of(tmp_path, "thinking")
    assert thinking.split_answer(thinking.with_token_ids(user_turn("a")), "We add") == SplitAnswer("We add", "")
    without_thinking = template_of(tmp_path, "thinking", kwargs={"enable_thinking": False})
    assert without_thinking.split_answer(without_thinking.with_token_ids(user_turn("a")), "Two.") == SplitAnswer(
        "", "Two."
    )


def test_markers_that_are_special_tokens_are_listed(tmp_path: Path) -> None:
    assert template_of(tmp_path, "harmony").special_markers == (
        "<|message|>", "<|start|>", "<|channel|>", "<|end|>", "<|return|>",
    )  # fmt: skip


def test_template_error_is_reported_with_the_prompt(tmp_path: Path) -> None:
    template = template_of(tmp_path, "dated")
    fine, strange = (
        Prompt("p", None, (user_turn("a"),)),
        Prompt("q", None, (user_turn("a"), (ChatMessage("developer", "b"),))),
    )
    with pytest.raises(
        BadInput, match=r"prompt 'q': the chat template of .* rejected the conversation: no role develop"
    ):
        render_prompts([fine, strange], template)


def test_prompts_get_first_request_token_ids_and_last_request_length(tmp_path: Path) -> None:
    template = template_of(tmp_path, "chatml")
    one, two = Prompt("one", "c", (user_turn("a"),)), Prompt("two", None, (user_turn("a"), user_turn("b b b")))
    rendered = render_prompts([one, two], template)

    ids = template.with_token_ids(user_turn("a"))[-1].token_ids
    assert [row.turns[0][-1].token_ids for row in rendered.rows] == [ids, ids]
    assert rendered.rows[1].turns[1] == user_turn("b b b"), "a later turn depends on an answer that is not known yet"
    last = template.with_token_ids((*user_turn("a"), ANSWER_PLACEHOLDER, *user_turn("b b b")))[-1].token_ids
    assert ids is not None
    assert last is not None
    assert rendered.tokens == {"one": len(ids), "two": len(last)}


def test_token_id_prompts_are_not_rendered(tmp_path: Path) -> None:
    raw = Prompt("raw", None, ((ChatMessage("user", "", (3, 4, 5)),),))
    assert render_prompts([raw], template_of(tmp_path, "chatml")).rows == (raw,)


def test_template_is_picklable_and_identified_by_its_digests(tmp_path: Path) -> None:
    template = template_of(tmp_path, "chatml")
    sent = pickle.loads(pickle.dumps(template))
    assert sent == template
    assert sent.with_token_ids(user_turn("hi")) == template.with_token_ids(user_turn("hi"))
    other = replace(template, source=template.source + " ")
    assert (other.template_sha256 == template.template_sha256, other.tokenizer_sha256 == template.tokenizer_sha256) == (
        False,
        True,
    )


def test_reversed_filler_of_a_rendered_prompt_has_no_stale_token_ids() -> None:
    assert ChatMessage("user", "a b", (1, 2)).reversed(7) == ChatMessage("user", "7 b a")
    assert ChatMessage("user", "", (1, 2, 3)).reversed(1) == ChatMessage("user", "", (2, 1, 3))


def test_missing_tokenizers_package_is_reported_with_the_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer_folder(tmp_path, "chatml")
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    declared = ChatTemplate(applied_by="Client", tokenizer=str(tmp_path), kwargs={"unlike": "any other"})
    with pytest.raises(BadInput, match=r"requires the package tokenizers: pip install 'specbench\[tokenizers\]'"):
        load_template(declared, MODEL, tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("tokenizer.json", "{}", "its tokenizer.json cannot be read"),
        ("tokenizer.json", "{", "tokenizer.json: is not valid JSON"),
        ("tokenizer_config.json", "[]", "tokenizer_config.json: is not a JSON object"),
        ("chat_template.jinja", "{% if %}", "is not valid Jinja"),
        (
            "tokenizer_config.json",
            json.dumps({"added_tokens_decoder": {"0": {"content": "<other>"}}}),
            "disagree about the id of '<other>'",
        ),
    ],
)
def test_damaged_tokenizer_folder_is_rejected(tmp_path: Path, file: str, content: str, words: str) -> None:
    tokenizer_folder(tmp_path, "chatml")
    (tmp_path / file).write_text(content)
    with pytest.raises(BadInput, match=words):
        load_template(ChatTemplate(applied_by="Client", tokenizer=str(tmp_path)), MODEL, tmp_path)


def test_tools_of_a_prompt_are_rendered_like_those_of_the_spec(tmp_path: Path) -> None:
    columns = {"id": "p", "messages": CALLED, "tools": OFFERED}
    (turn,) = parse_prompt(PromptRow("line 1", columns)).turns
    by_spec = template_of(tmp_path / "spec", "tooled", kwargs={"tools": OFFERED})
    template = template_of(tmp_path / "own", "tooled")

    assert template.text(turn) == by_spec.text((replace(turn[0], tools=""), *turn[1:]))
    assert '<call>look {"z": "é", "a": [1, 2.5]}</call><|im_end|>' in template.text(turn)
    assert "<|im_start|>user\na fox for c1<|im_end|>" in template.text(turn)
    later = (*turn, ChatMessage("assistant", "ok"), ChatMessage("user", "b"))
    assert "# Tools" in template.text(later), "tools are offered in every turn"
    with pytest.raises(BadInput, match=r"both the prompt and chatTemplate\.kwargs define tools"):
        by_spec.text(turn)


def test_tool_use_template_is_used_for_prompts_with_tools(tmp_path: Path) -> None:
    folder = tokenizer_folder(tmp_path, "chatml")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("TOOLS")
    declared = ChatTemplate(applied_by="Client", tokenizer=str(folder))

    def rendered(*offered: bool) -> str:
        return load_template(declared, MODEL, folder, offered=offered).text(user_turn("a"))

    assert rendered(True) == "TOOLS"
    assert rendered(False) == rendered() != "TOOLS"
    with pytest.raises(BadInput, match=r"and the workload has both: set chatTemplate\.name to one"):
        rendered(True, False)
