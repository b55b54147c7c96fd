"""Messages become the model's own token ids, once and for every engine."""

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


def user(*texts: str) -> tuple[ChatMessage, ...]:
    return tuple(ChatMessage("user", text) for text in texts)


def test_special_tokens_are_parsed_and_no_beginning_is_doubled(tmp_path: Path) -> None:
    template = template_of(tmp_path, "dated")
    asked = template.with_token_ids(user("hi"))
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    by_itself = tokenizer.encode("hi").ids
    assert by_itself[0] == tokenizer.token_to_id("<bos>"), "the tokenizer adds one where it is let"

    ids = asked[-1].token_ids
    assert ids is not None
    assert list(ids).count(tokenizer.token_to_id("<bos>")) == 1
    assert ids[0] == tokenizer.token_to_id("<bos>")
    assert ids[1] == tokenizer.token_to_id("<|head|>")
    assert len(ids) > 4, "what the tokenizer was saved with to cut texts by is no part of a prompt"
    assert decoded(tmp_path, ids) == template.text(user("hi"))
    assert asked[-1].content == "hi"
    assert template.with_token_ids(asked) is asked, "what is rendered stays"


def test_the_day_is_the_specs(tmp_path: Path) -> None:
    assert "Today: 01 Jan 2026" in template_of(tmp_path, "dated").text(user("hi"))
    assert "Today: 02 Mar 2027" in template_of(tmp_path, "dated", date="2027-03-02").text(user("hi"))


def test_variables_of_the_spec_come_before_special_tokens(tmp_path: Path) -> None:
    assert template_of(tmp_path, "dated", kwargs={"bos_token": "<eos>"}).text(user("hi")).startswith("<eos>")
    assert template_of(tmp_path, "thinking").text(user("hi")).endswith("<think>\n")
    quiet = template_of(tmp_path, "thinking", kwargs={"enable_thinking": False})
    assert quiet.text(user("hi")).endswith("</think>\n\n")


def test_what_was_thought_is_told_by_the_name_that_the_template_asks_by(tmp_path: Path) -> None:
    history = (*user("a"), ChatMessage("assistant", "b", reasoning="hm"))
    assert "<|channel|>analysis<|message|>hm<|end|>" in template_of(tmp_path / "h", "harmony").text(history)
    assert "hm" not in template_of(tmp_path / "c", "chatml").text(history)


def test_an_answer_is_split_as_its_prompt_began_it(tmp_path: Path) -> None:
    thinking = template_of(tmp_path, "thinking")
    assert thinking.split_answer(thinking.with_token_ids(user("a")), "We add") == SplitAnswer("We add", "")
    quiet = template_of(tmp_path, "thinking", kwargs={"enable_thinking": False})
    assert quiet.split_answer(quiet.with_token_ids(user("a")), "Two.") == SplitAnswer("", "Two.")


def test_markers_that_are_special_tokens_are_known(tmp_path: Path) -> None:
    assert template_of(tmp_path, "harmony").special_markers == (
        "<|message|>", "<|start|>", "<|channel|>", "<|end|>", "<|return|>",
    )  # fmt: skip


def test_what_a_template_refuses_is_told_by_the_prompt(tmp_path: Path) -> None:
    template = template_of(tmp_path, "dated")
    fine, strange = Prompt("p", None, (user("a"),)), Prompt("q", None, (user("a"), (ChatMessage("developer", "b"),)))
    with pytest.raises(
        BadInput, match=r"prompt 'q': the chat template of .* rejected the conversation: no role develop"
    ):
        render_prompts([fine, strange], template)


def test_prompts_get_the_ids_of_their_first_request_and_the_length_of_their_last(tmp_path: Path) -> None:
    template = template_of(tmp_path, "chatml")
    one, two = Prompt("one", "c", (user("a"),)), Prompt("two", None, (user("a"), user("b b b")))
    rendered = render_prompts([one, two], template)

    ids = template.with_token_ids(user("a"))[-1].token_ids
    assert [row.turns[0][-1].token_ids for row in rendered.rows] == [ids, ids]
    assert rendered.rows[1].turns[1] == user("b b b"), "an answer comes before it, and nobody knows that yet"
    last = template.with_token_ids((*user("a"), ANSWER_PLACEHOLDER, *user("b b b")))[-1].token_ids
    assert ids is not None
    assert last is not None
    assert rendered.tokens == {"one": len(ids), "two": len(last)}


def test_prompts_that_came_as_tokens_stay_as_they_came(tmp_path: Path) -> None:
    raw = Prompt("raw", None, ((ChatMessage("user", "", (3, 4, 5)),),))
    assert render_prompts([raw], template_of(tmp_path, "chatml")).rows == (raw,)


def test_it_is_plain_data_and_known_by_its_parts(tmp_path: Path) -> None:
    template = template_of(tmp_path, "chatml")
    sent = pickle.loads(pickle.dumps(template))
    assert sent == template
    assert sent.with_token_ids(user("hi")) == template.with_token_ids(user("hi"))
    other = replace(template, source=template.source + " ")
    assert (other.template_sha256 == template.template_sha256, other.tokenizer_sha256 == template.tokenizer_sha256) == (
        False,
        True,
    )


def test_a_filler_of_a_rendered_prompt_is_text_again() -> None:
    assert ChatMessage("user", "a b", (1, 2)).reversed(7) == ChatMessage("user", "7 b a")
    assert ChatMessage("user", "", (1, 2, 3)).reversed(1) == ChatMessage("user", "", (2, 1, 3))


def test_where_the_library_is_missing_it_is_said_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_a_folder_that_is_damaged_is_refused(tmp_path: Path, file: str, content: str, words: str) -> None:
    tokenizer_folder(tmp_path, "chatml")
    (tmp_path / file).write_text(content)
    with pytest.raises(BadInput, match=words):
        load_template(ChatTemplate(applied_by="Client", tokenizer=str(tmp_path)), MODEL, tmp_path)


def test_tools_of_a_prompt_are_rendered_as_those_of_the_spec(tmp_path: Path) -> None:
    told = {"id": "p", "messages": CALLED, "tools": OFFERED}
    (turn,) = parse_prompt(PromptRow("line 1", told)).turns
    by_spec = template_of(tmp_path / "spec", "tooled", kwargs={"tools": OFFERED})
    template = template_of(tmp_path / "own", "tooled")

    assert template.text(turn) == by_spec.text((replace(turn[0], tools=""), *turn[1:]))
    assert '<call>look {"z": "é", "a": [1, 2.5]}</call><|im_end|>' in template.text(turn)
    assert "<|im_start|>user\na fox for c1<|im_end|>" in template.text(turn)
    later = (*turn, ChatMessage("assistant", "ok"), ChatMessage("user", "b"))
    assert "# Tools" in template.text(later), "they are offered in every turn"
    with pytest.raises(BadInput, match=r"both the prompt and chatTemplate\.kwargs define tools"):
        by_spec.text(turn)


def test_of_two_templates_the_one_for_tools_is_taken_for_prompts_that_offer_them(tmp_path: Path) -> None:
    folder = tokenizer_folder(tmp_path, "chatml")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("TOOLS")
    declared = ChatTemplate(applied_by="Client", tokenizer=str(folder))

    def taken(*offered: bool) -> str:
        return load_template(declared, MODEL, folder, offered=offered).text(user("a"))

    assert taken(True) == "TOOLS"
    assert taken(False) == taken() != "TOOLS"
    with pytest.raises(BadInput, match=r"and the workload has both: set chatTemplate\.name to one"):
        taken(True, False)
