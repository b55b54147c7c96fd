"""Chat templates: rendering, tokens and reasoning, and where a template is found."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import TemplateError

from specbench_api.spec.chat_template import ChatTemplate
from specbench_api.spec.model import PvcModel, Target
from specbench_client.chat import ChatMessage
from specbench_client.errors import BadInput
from specbench_client.workload.chat_template import loading
from specbench_client.workload.chat_template.loading import (
    TokenizerLocation,
    TokenizerStorage,
    load_template,
    read_file,
    tokenizer_location,
)
from specbench_client.workload.chat_template.reasoning import (
    SplitAnswer,
    markers_among,
    opens_reasoning,
    split_channels,
)
from specbench_client.workload.chat_template.template import (
    ANSWER_PLACEHOLDER,
    AppliedTemplate,
    compile_template,
    render_prompts,
)
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.row_parsing import Prompt, parse_prompt
from specbench_testing.chat_templates import (
    BESIDE,
    CALLED,
    CHATML,
    OFFERED,
    SETTINGS,
    chat,
    folder_beside,
    tokenizer_folder,
)

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
    parts = ChatMessage("user", "a b", parts='[{"type": "text", "text": "a b"}]')
    assert parts.reversed(7).sent == {"role": "user", "content": "7 b a"}, "parts would repeat the text in its order"
    assert ChatMessage("user", "", (1, 2, 3)).reversed(1) == ChatMessage("user", "", (2, 1, 3))


def test_missing_tokenizers_package_is_reported_with_the_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer_folder(tmp_path, "chatml")
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    declared = ChatTemplate(applied_by="Client", tokenizer=str(tmp_path), kwargs={"unlike": "any other"})
    with pytest.raises(BadInput, match=r"requires the package tokenizers: pip install 'WHEEL\[tokenizers\]'"):
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


def test_content_in_parts_is_rejected_by_a_template_of_the_client(tmp_path: Path) -> None:
    content = [{"type": "text", "text": "Hi"}, {"type": "text", "text": "Ho"}]
    row = PromptRow("line 1", {"id": "p", "messages": [{"role": "user", "content": content}]})
    (turn,) = parse_prompt(row).turns
    with pytest.raises(BadInput, match="has content in parts"):
        template_of(tmp_path, "chatml").text(turn)


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


HARMONY = "<|channel|>analysis<|message|>We add.<|end|><|start|>assistant<|channel|>final<|message|>Two.<|return|>"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Two.\n", SplitAnswer("", "Two.\n")),
        ("<think>\nWe add.\n</think>\n\nTwo.", SplitAnswer("We add.", "Two.")),
        ("We add.\n</think>\n\nTwo.", SplitAnswer("We add.", "Two.")),
        ("<think>We add and", SplitAnswer("We add and", "")),
        ("<think>\n\n</think>\n\nTwo.", SplitAnswer("", "Two.")),
        ("<think>a</think>b<think>c</think>d", SplitAnswer("a</think>b<think>c", "d")),
        ("The tag <think> opens a thought.", SplitAnswer("", "The tag <think> opens a thought.")),
        (HARMONY, SplitAnswer("We add.", "Two.")),
        ("<|channel|>analysis<|message|>We add and", SplitAnswer("We add and", "")),
        ("<|channel|>final<|message|>Two", SplitAnswer("", "Two")),
        (
            "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>",
            SplitAnswer("{}", ""),
        ),
        (
            "<|channel|>commentary<|message|>First.<|end|><|start|>assistant<|channel|>final<|message|>Two.",
            SplitAnswer("First.", "Two."),
        ),
        ("Phi says so.<|end|>", SplitAnswer("", "Phi says so.<|end|>")),
    ],
)
def test_answer_is_split_into_reasoning_and_final_text(text: str, expected: SplitAnswer) -> None:
    assert split_channels(text) == expected


def test_unclosed_reasoning_started_by_the_prompt_is_not_final_text() -> None:
    assert opens_reasoning("<|im_start|>assistant\n<think>\n")
    assert not opens_reasoning("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert split_channels("We add and", thinking=True) == SplitAnswer("We add and", "")
    assert split_channels("We add.\n</think>\nTwo.", thinking=True) == SplitAnswer("We add.", "Two.")


HARMONY_MARKERS = ("<|message|>", "<|start|>", "<|channel|>", "<|constrain|>", "<|end|>", "<|return|>", "<|call|>")
MARKERS = ("<think>", "</think>", *HARMONY_MARKERS)


def test_only_markers_of_reasoning_are_kept_in_the_text() -> None:
    assert markers_among({"<|end|>", "<|start|>", "<|assistant|>"}) == (), "Phi's special tokens do not mark reasoning"
    assert markers_among({"</think>", "<think>", "<|end|>"}) == ("<think>", "</think>")
    assert markers_among({*HARMONY_MARKERS, "<|endoftext|>"}) == HARMONY_MARKERS


PIECES = st.lists(st.sampled_from((*MARKERS, "final", "analysis", "a", " ", "\n", "<|chan", "nel|>", "</thi", "nk>")))


@given(st.one_of(st.text(), PIECES.map("".join)), st.booleans())
def test_final_text_contains_no_markers_and_is_not_split_again(text: str, thinking: bool) -> None:
    final = split_channels(text, thinking=thinking).final
    assert split_channels(final) == SplitAnswer("", final)
    assert "</think>" not in final
    assert "<|channel|>" not in final


@given(st.text(), st.text(), st.booleans())
def test_text_without_markers_is_kept_unchanged(before: str, after: str, thinking: bool) -> None:
    plain = (before + after).replace("<", "(")
    assert split_channels(plain) == SplitAnswer("", plain)
    thought, answer = before.replace("<", "(").strip("\n"), after.replace("<", "(").lstrip("\n")
    assert split_channels(f"{thought}</think>{answer}", thinking=thinking) == SplitAnswer(thought.lstrip(), answer)


DAY = date(2026, 2, 3)


def render(source: str, **variables: object) -> str:
    return compile_template(source, DAY).render(**variables)


def test_blocks_add_no_whitespace() -> None:
    text = render(CHATML, messages=chat(" hi "), add_generation_prompt=True)
    assert text == ("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")


def test_strftime_now_uses_midnight_of_the_configured_date() -> None:
    assert render("{{ strftime_now('%d %b %Y %H:%M:%S') }}") == "03 Feb 2026 00:00:00"


def test_tojson_does_not_escape_html() -> None:
    assert render("{{ value | tojson }}", value={"b": "<é & 'x'>", "a": 1}) == '{"b": "<é & \'x\'>", "a": 1}'
    assert render("{{ value | tojson(indent=1, sort_keys=true) }}", value={"b": 1, "a": 2}) == '{\n "a": 2,\n "b": 1\n}'


def test_loop_controls_work_and_generation_blocks_are_transparent() -> None:
    assert render("{% for n in [1, 2, 3] %}{% if n == 2 %}{% continue %}{% endif %}{{ n }}{% endfor %}") == "13"
    assert render("a{% generation %}{{ 'b' }}{% if true %}c{% endif %}{% endgeneration %}d") == "abcd"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ raise_exception('no tools here') }}", "no tools here"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{% set _ = messages.append(1) %}", "unsafe"),
    ],
)
def test_template_errors_and_unsafe_access_are_rejected(source: str, words: str) -> None:
    with pytest.raises(TemplateError, match=words):
        render(source, messages=[])


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


def declared(**changed: Any) -> ChatTemplate:
    return ChatTemplate.model_validate({"appliedBy": "Client"} | changed)


@pytest.mark.parametrize(
    ("template", "model", "expected"),
    [
        ({}, {}, (TokenizerStorage.HUB, "o/m@v1")),
        ({}, {"tokenizer": "o/t"}, (TokenizerStorage.HUB, "o/t@main")),
        ({}, {"tokenizer": "o/m"}, (TokenizerStorage.HUB, "o/m@v1")),
        ({"tokenizer": "o/t@abc"}, {"tokenizer": "o/u"}, (TokenizerStorage.HUB, "o/t@abc")),
        ({"tokenizer": "hf://o/t/"}, {}, (TokenizerStorage.HUB, "o/t@main")),
        ({"tokenizer": "s3://b/t/"}, {}, (TokenizerStorage.S3, "s3://b/t")),
        ({"tokenizer": "/models/t"}, {}, (TokenizerStorage.FOLDER, "/models/t")),
        ({"tokenizer": "/models/t/tokenizer.json"}, {}, (TokenizerStorage.FOLDER, "/models/t")),
        ({}, {"path": "/models/m"}, (TokenizerStorage.FOLDER, "/models/m")),
        ({}, {"path": "/models/m.gguf", "tokenizer": "/models/t"}, (TokenizerStorage.FOLDER, "/models/t")),
        ({}, {"uri": "s3://b/m"}, (TokenizerStorage.S3, "s3://b/m")),
    ],
)
def test_most_specific_setting_gives_the_tokenizer(
    template: dict[str, Any], model: dict[str, Any], expected: tuple[TokenizerStorage, str], tmp_path: Path
) -> None:
    found = tokenizer_location(declared(**template), Target(name="o/m", revision="v1", **model), tmp_path)
    assert (found.kind, found.address) == expected


def test_local_folder_takes_precedence_over_a_hub_name(tmp_path: Path) -> None:
    (tmp_path / "o" / "t").mkdir(parents=True)
    found = tokenizer_location(declared(tokenizer="o/t"), Target(name="m"), tmp_path)
    assert (found.kind, found.address) == (TokenizerStorage.FOLDER, str(tmp_path / "o" / "t"))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            {"path": "/models/m.gguf"},
            "the tokenizer inside a GGUF file is not supported: set chatTemplate.tokenizer",
        ),
        ({"uri": "https://host/m"}, "a tokenizer cannot be read from this address: set chatTemplate.tokenizer"),
        ({"pvc": PvcModel(claim_name="models", path="m")}, "the volume models is not mounted"),
    ],
)
def test_unsupported_tokenizer_location_is_rejected_with_the_field(
    model: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=words):
        tokenizer_location(declared(), Target(name="o/m", **model), tmp_path)


def test_model_on_a_mounted_volume_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "PVC_FOLDER", str(tmp_path))
    (tmp_path / "models").mkdir()
    model = Target(name="o/m", pvc=PvcModel(claim_name="models", path="/m", sub_path="llama"))
    assert tokenizer_location(declared(), model, tmp_path).address == str(tmp_path / "models" / "llama" / "m")


def test_tokenizer_is_read_from_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tokenizer_folder(tmp_path, "chatml")

    def fetch(uri: str) -> bytes:
        path = folder / uri.removeprefix("s3://bucket/t/")
        if not path.exists():
            raise BadInput("there is no such object")
        return path.read_bytes()

    monkeypatch.setattr(loading, "read_object", fetch)
    of_template = "s3://bucket/t/chat_template.jinja"
    local, remote = declared(tokenizer=str(folder)), declared(tokenizer="s3://bucket/t", template=of_template)
    template = load_template(remote, Target(name="m"), tmp_path)
    assert template.template_sha256 == load_template(local, Target(name="m"), tmp_path).template_sha256
    with pytest.raises(BadInput, match=r"s3://bucket/other has no tokenizer.json: set chatTemplate.tokenizer to"):
        load_template(declared(tokenizer="s3://bucket/other"), Target(name="m"), tmp_path)


class EntryNotFoundError(Exception):
    """Has the name of the exception in huggingface_hub."""


class GatedRepoError(Exception):
    """Has the name of the exception in huggingface_hub."""


@pytest.mark.parametrize(
    ("kind", "words"),
    [(EntryNotFoundError, None), (GatedRepoError, "accept its terms on its hub page and set HF_TOKEN")],
)
def test_missing_hub_file_is_none_and_a_gated_one_is_rejected(
    kind: type[Exception], words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(uri: str) -> Path:
        cause = FileNotFoundError("Access to model is restricted: gated repo" if words else "no such file")
        cause.__cause__ = kind()
        raise BadInput("the data set could not be read") from cause

    monkeypatch.setattr(loading, "hub_file", fail)
    place = TokenizerLocation(TokenizerStorage.HUB, "o/m@main", "spec.model.name")
    if words is None:
        assert read_file(place, "chat_template.jinja") is None
    else:
        with pytest.raises(BadInput, match=words):
            read_file(place, "chat_template.jinja")


NAMED = {"chat_template": [{"name": "default", "template": "one"}, {"name": "rag", "template": "two"}]}


@pytest.mark.parametrize(
    ("files", "fields", "expected"),
    [
        ({"chat_template.jinja": "own"}, {}, "own"),
        ({"chat_template.jinja": "own", "tokenizer_config.json": json.dumps({"chat_template": "told"})}, {}, "own"),
        ({"tokenizer_config.json": json.dumps({"chat_template": "told"})}, {}, "told"),
        ({"tokenizer_config.json": json.dumps(NAMED)}, {}, "one"),
        ({"tokenizer_config.json": json.dumps(NAMED)}, {"name": "rag"}, "two"),
        ({"chat_template.jinja": "own", "additional_chat_templates/rag.jinja": "file"}, {"name": "rag"}, "file"),
        ({"chat_template.jinja": "own", "mine.jinja": "mine"}, {"template": "mine.jinja"}, "mine"),
    ],
)
def test_template_is_the_one_transformers_uses(
    files: dict[str, str], fields: dict[str, str], expected: str, tmp_path: Path
) -> None:
    folder = tokenizer_folder(tmp_path, "chatml")
    (folder / "chat_template.jinja").unlink()
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    template = load_template(declared(tokenizer=str(folder), **fields), Target(name="m"), folder)
    assert template.text([]) == expected


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {},
            (
                "has no chat template: set chatTemplate.template to a template of your own,"
                " or set chatTemplate.appliedBy: Engine"
            ),
        ),
        ({"name": "rag"}, r"has no chat template named 'rag' \(found: none\)"),
        ({"template": "mine.jinja"}, "mine.jinja: No such file or directory: give a Jinja file"),
    ],
)
def test_missing_template_is_rejected_with_a_remedy(fields: dict[str, str], words: str, tmp_path: Path) -> None:
    folder = tokenizer_folder(tmp_path, "chatml")
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(BadInput, match=words):
        load_template(declared(tokenizer=str(folder), **fields), Target(name="m"), folder)
